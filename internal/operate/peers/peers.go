package peers

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/text/words"
)

// Path is where an instance answers the others, by POST.
const Path = "/v1/peers"

// Bounds of a question to all instances: its time, how many are asked, and the bytes of a question and
// of an answer.
const (
	Timeout     = time.Second
	maxAsked    = 64
	maxQuestion = 64 << 10
	maxAnswer   = 2 << 20
)

// saltBytes is the length of what makes the keys of a question unique.
const saltBytes = 32

// Options of [New]. Secret, Self and Others are required. The functions are safe for concurrent use.
type Options struct {
	// Secret is what all instances share, at least 32 bytes.
	Secret string
	// Name is the name of this instance while Self returns no address.
	Name string
	// Self returns the address that this instance publishes. Empty: none, and nothing asks it.
	Self func() string
	// Others returns the addresses that others publish, empty for one that publishes none, and how
	// many more there are. They may be anything.
	Others func() (addresses []string, more int)
	// Log gets a warning for each question that is refused, and one for the first malformed address.
	// Wrap it to sample them. Nil disables them.
	Log *zap.Logger
	// Now is the clock. Nil: time.Now.
	Now func() time.Time
}

// Peers are the instances of a service. They are safe for concurrent use.
type Peers struct {
	o         Options
	client    *http.Client
	malformed sync.Once
	seen      seen
}

// New returns the instances that the options describe.
func New(o Options) *Peers {
	if o.Log == nil {
		o.Log = zap.NewNop()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Peers{o: o, client: &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{ // without the proxy of the environment
			DisableCompression: true, MaxResponseHeaderBytes: 4 << 10, MaxIdleConnsPerHost: 4, IdleConnTimeout: 30 * time.Second,
		},
	}}
}

// A question is what one instance asks another.
type question struct {
	To   string    `json:"to"` // the address that is asked
	Time time.Time `json:"time"`
	Get  string    `json:"get"` // a path of the API with its query
}

// The directions of messages.
const (
	asks    = "slidegate peers question"
	answers = "slidegate peers answer"
)

// aead returns the cipher of a direction, for a question with a salt. The errors are those of wrong
// lengths of keys.
func (p *Peers) aead(direction string, salt []byte) cipher.AEAD {
	key, _ := hkdf.Key(sha256.New, []byte(p.o.Secret), salt, direction, 32)
	block, _ := aes.NewCipher(key)
	a, _ := cipher.NewGCMWithRandomNonce(block)
	return a
}

// Ask asks all instances for a path of the API with its query, and gives what they answer to sum, after here,
// the answer of this instance, which comes first. It takes [Timeout] at most. Without p it returns
// here.
func Ask[T any](ctx context.Context, p *Peers, path string, here T, sum func([]merge.Answer[T]) T) T {
	if p == nil {
		return here
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	addresses, silent, more := p.others()
	all := make([]merge.Answer[T], 1+len(addresses))
	all[0] = merge.Answer[T]{From: p.name(), Value: &here}
	var wait sync.WaitGroup
	for i, to := range addresses {
		wait.Go(func() {
			value := new(T)
			body, err := p.ask(ctx, to.String(), path)
			if err == nil && json.Unmarshal(body, value) != nil {
				err = errors.New("it has another version of rls")
			}
			all[i+1] = merge.Answer[T]{From: to.String(), Value: value, Err: err}
		})
	}
	wait.Wait()
	if silent > 0 {
		all = append(all, merge.Answer[T]{
			From: words.Counted(uint64(silent), "instance") + " without an address", Count: silent,
			Err: errors.New("set admin.peers_key_file there, and let admin.address be reachable from other machines"),
		})
	}
	if more > 0 {
		all = append(all, merge.Answer[T]{
			From: words.Counted(uint64(more), "further instance"), Count: more,
			Err: fmt.Errorf("an instance asks %d others at most", maxAsked),
		})
	}
	return sum(all)
}

// name returns the name of this instance.
func (p *Peers) name() string {
	if self := p.o.Self(); self != "" {
		return self
	}
	return p.o.Name
}

// others returns the addresses of the others, the number of those without one, and that of further
// ones. A loopback address is asked only by an instance that publishes one.
func (p *Peers) others() (addresses []netip.AddrPort, silent, more int) {
	texts, more := p.o.Others()
	self, _ := netip.ParseAddrPort(p.o.Self()) // the zero value if there is none
	for _, text := range texts {
		a, err := netip.ParseAddrPort(text)
		ip := a.Addr()
		switch {
		case text == "":
			silent++
		case err != nil || a.String() != text || a.Port() == 0 || ip.Is4In6() || !ip.IsGlobalUnicast() && (!ip.IsLoopback() || !self.Addr().IsLoopback()):
			p.malformed.Do(func() {
				p.o.Log.Warn("an entry of an instance in Redis has no valid address, so it is not asked; find the program that writes the key instances below store.redis.key_prefix")
			})
		case a == self || slices.Contains(addresses, a):
		case len(addresses) == maxAsked:
			more++
		default:
			addresses = append(addresses, a)
		}
	}
	return addresses, silent, more
}

// ask asks one instance. Its errors repeat nothing of an answer without proof.
func (p *Peers) ask(ctx context.Context, to, path string) ([]byte, error) {
	text, err := json.Marshal(question{to, p.o.Now(), path})
	if err != nil {
		return nil, err
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt)                                 // never fails
	sealed := p.aead(asks, salt).Seal(nil, nil, text, nil) //nolint:gosec // the AEAD makes a random nonce
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+to+Path, bytes.NewReader(slices.Concat(salt, sealed)))
	if err != nil {
		return nil, err
	}
	response, err := p.client.Do(r)
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
		_ = response.Body.Close() // only read
	}
	switch inner := (*url.Error)(nil); {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %s", words.Duration(Timeout))
	case errors.As(err, &inner):
		return nil, inner.Err
	case err != nil:
		return nil, err
	case len(data) > maxAnswer:
		return nil, fmt.Errorf("its answer has more than %s", words.Bytes(maxAnswer))
	}
	data, err = p.aead(answers, salt).Open(nil, nil, data, nil)
	if err != nil {
		return nil, errors.New("it does not prove that it has the secret of admin.peers_key_file")
	}
	if body, ok := bytes.CutPrefix(data, []byte(good)); ok {
		return body, nil
	}
	return nil, fmt.Errorf("it refuses: %s", data)
}
