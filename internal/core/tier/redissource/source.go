package redissource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/core/tier"
)

// Options of a [Source]. All but KeyPrefix are required.
type Options struct {
	// Client is closed with the source. It must obey the deadlines of contexts
	// (ContextTimeoutEnabled). It may retry, because the source only reads.
	Client redis.UniversalClient
	// KeyPrefix begins the names of all hashes. It may be empty.
	KeyPrefix string
	// Channel is the channel of published changes.
	Channel string
	// Overrides reads the overrides of a record.
	Overrides func([]byte) (map[string]tier.Override, error)
	// Log gets a line for each invalid message on the channel. Wrap it to sample them.
	Log *zap.Logger
}

// Source implements [tier.Watcher]. It is safe for concurrent use.
type Source struct {
	opts    Options
	marker  string        // its key exists if all subjects are in Redis
	cluster bool          // the marker may be on another node than a hash
	silent  time.Duration // silence, or less in tests
}

var (
	_ tier.Watcher = (*Source)(nil)
	_ tier.Batcher = (*Source)(nil)
)

// silence is how long Watch waits for a message before it pings the server, and how long
// the server then has to answer.
const silence = 10 * time.Second

// New returns a source that has not connected yet.
func New(o Options) *Source {
	_, cluster := o.Client.(*redis.ClusterClient)
	return &Source{opts: o, marker: o.KeyPrefix + "ready", cluster: cluster, silent: silence}
}

// Close closes the client. Lookups that are under way fail.
func (s *Source) Close() error { return s.opts.Client.Close() }

// batch is the most keys of one question. It takes Redis less than a millisecond.
const batch = 100

// Batch implements [tier.Batcher].
func (*Source) Batch() int { return batch }

// Lookup implements [tier.Source].
func (s *Source) Lookup(ctx context.Context, k tier.Key) (*tier.Record, error) {
	r := s.LookupAll(ctx, []tier.Key{k})[0]
	return r.Record, r.Err
}

// LookupAll implements [tier.Batcher]. It takes one round trip for the hashes of the keys,
// and one for those of their subjects.
func (s *Source) LookupAll(ctx context.Context, keys []tier.Key) []tier.Result {
	results := make([]tier.Result, len(keys))
	reads := make([]read, 0, len(keys))
	for i, k := range keys {
		switch {
		case k.Digest != "":
			reads = append(reads, read{at: i, name: s.opts.KeyPrefix + "key:" + k.Digest, fields: keyFields})
		case tier.ValidID(k.ID) == nil:
			reads = append(reads, s.ofSubject(i, k.ID))
		default:
			results[i].Record = &tier.Record{} // no subject has an invalid id
		}
	}
	for len(reads) > 0 {
		s.ask(ctx, reads)
		var next []read
		for i := range reads {
			r := &reads[i]
			id, err := s.subject(r)
			switch {
			case err != nil:
				results[r.at].Err = err
			case id != "":
				next = append(next, s.ofSubject(r.at, id))
			default:
				results[r.at].Record, results[r.at].Err = s.record(r)
			}
		}
		reads = next
	}
	return results
}

var (
	keyFields     = []string{"subject", "revoked"}
	subjectFields = []string{"tier", "disabled", "overrides", "labels", "limits"}
)

// A read is the reading of one hash for the key with the index at.
type read struct {
	at     int
	name   string
	id     string // of the subject, in its own hash
	fields []string
	hash   map[string]string // the fields that exist
	err    error
}

func (s *Source) ofSubject(at int, id string) read {
	return read{at: at, name: s.opts.KeyPrefix + "subject:" + id, id: id, fields: subjectFields}
}

// subject returns the subject that the hash of a key names. It returns "" if there is nothing
// more to read.
func (s *Source) subject(r *read) (id string, err error) {
	if r.err != nil || r.id != "" || len(r.hash) == 0 {
		return "", r.err
	}
	id, ok := r.hash["subject"]
	if !ok {
		return "", fmt.Errorf("tiers.redis: %s: %w: the field subject is missing", r.name, tier.ErrBadRecord)
	}
	revoked, err := readBool(r.hash["revoked"])
	if err != nil {
		return "", fmt.Errorf("tiers.redis: %s: %w: revoked: %w", r.name, tier.ErrBadRecord, err)
	}
	if revoked {
		r.hash = nil
		return "", nil
	}
	if err := tier.ValidID(id); err != nil {
		return "", fmt.Errorf("tiers.redis: %s: %w: subject: %w", r.name, tier.ErrBadRecord, err)
	}
	return id, nil
}

// ask reads hashes, and in the same round trip whether the marker exists. If a hash does not
// exist and the marker does not either, its error is set. On a Cluster it reads the marker
// only then.
func (s *Source) ask(ctx context.Context, reads []read) {
	p := s.opts.Client.Pipeline()
	hashes := make([]*redis.SliceCmd, len(reads))
	for i := range reads {
		hashes[i] = p.HMGet(ctx, reads[i].name, reads[i].fields...)
	}
	var ready *redis.IntCmd
	if !s.cluster {
		ready = p.Exists(ctx, s.marker)
	}
	_, _ = p.Exec(ctx) // each command has its error
	for i := range reads {
		r := &reads[i]
		values, err := hashes[i].Result()
		switch {
		case err == nil:
		case redis.HasErrorPrefix(err, "WRONGTYPE"):
			r.err = fmt.Errorf("tiers.redis: %s: %w: it is no hash", r.name, tier.ErrBadRecord)
			continue
		default:
			r.err = fmt.Errorf("tiers.redis: %w", err)
			continue
		}
		r.hash = make(map[string]string, len(r.fields))
		for i, v := range values {
			if text, ok := v.(string); ok {
				r.hash[r.fields[i]] = text
			}
		}
		if len(r.hash) > 0 {
			continue
		}
		if ready == nil {
			ready = s.opts.Client.Exists(ctx, s.marker)
		}
		switch n, err := ready.Result(); {
		case err != nil:
			r.err = fmt.Errorf("tiers.redis: %w", err)
		case n == 0:
			r.err = fmt.Errorf("tiers.redis: a key was not found, and %[1]s does not exist, so the key is not taken for unknown. Has this Redis lost its data? Are tiers.redis.url and tiers.redis.key_prefix right? When all subjects are there: SET %[1]s 1", s.marker)
		}
	}
}

// record makes a record from the hash of a subject. It has no subject if the hash does not exist.
func (s *Source) record(r *read) (*tier.Record, error) {
	if len(r.hash) == 0 {
		return &tier.Record{}, nil
	}
	disabled, err := readBool(r.hash["disabled"])
	if err != nil {
		return nil, fmt.Errorf("tiers.redis: %s: %w: disabled: %w", r.name, tier.ErrBadRecord, err)
	}
	subject, err := tier.NewSubject(tier.Parts{
		ID:        r.id,
		Tier:      r.hash["tier"],
		Disabled:  disabled,
		Overrides: []byte(r.hash["overrides"]),
		Labels:    []byte(r.hash["labels"]),
		Limits:    []byte(r.hash["limits"]),
	}, s.opts.Overrides)
	if err != nil {
		return nil, fmt.Errorf("tiers.redis: %s: %w", r.name, err)
	}
	return &tier.Record{Subject: subject}, nil
}

func readBool(text string) (bool, error) {
	switch text {
	case "1", "true":
		return true, nil
	case "", "0", "false":
		return false, nil
	}
	return false, errors.New("it must be 0, 1, true or false")
}

// Watch implements [tier.Watcher]. It reports each message on the channel as a change.
func (s *Source) Watch(ctx context.Context, ready func(), changed func(tier.Change)) error {
	err := s.listen(ctx, s.opts.Client.Subscribe(ctx, s.opts.Channel), ready, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("tiers.redis: listening on %s: %w", s.opts.Channel, err)
}

// listen listens until the connection fails, and returns why.
func (s *Source) listen(ctx context.Context, sub *redis.PubSub, ready func(), changed func(tier.Change)) error {
	defer func() { _ = sub.Close() }() // listen has its error already
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })()
	subscribed := false
	pinged := false // since the last message
	for {
		// The library's Channel would hide that it has connected again.
		message, err := sub.ReceiveTimeout(ctx, s.silent)
		switch {
		case err == nil:
			pinged = false
		case ctx.Err() == nil && isTimeout(err) && subscribed && !pinged && sub.Ping(ctx) == nil:
			pinged = true
		default:
			return err
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if subscribed {
				return errors.New("the connection was lost")
			}
			subscribed = true
			ready()
		case *redis.Message:
			c, err := tier.ReadChange([]byte(m.Payload))
			if err != nil {
				s.opts.Log.Warn("a message on the channel of tiers is malformed; all subjects count as changed", zap.String("channel", s.opts.Channel), zap.Error(err))
			}
			changed(c)
		}
	}
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
