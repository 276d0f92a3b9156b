package insight

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/policy"
	"github.com/slidegate/slidegate/internal/tier"
)

// logPages returns all pages of the logs of rules, by rule, subject and values.
func (a *counted) logPages(rules ...string) map[string]LimitUsage {
	a.t.Helper()
	all := make(map[string]LimitUsage)
	for q, n := (LogsQuery{Rules: rules}), 0; ; n++ {
		l, err := a.Logs(a.t.Context(), q)
		if err != nil {
			a.t.Fatal(err)
		}
		if len(l.Logs) > pageLimits || n > 500 {
			a.t.Fatalf("page %d has %d logs", n, len(l.Logs))
		}
		for _, one := range l.Logs {
			all[fmt.Sprintf("%s|%s|%s|%s", one.Rule, one.Subject, one.Values, one.Amount())] = one
		}
		if q.Cursor = l.Next; q.Cursor == "" {
			return all
		}
	}
}

// TestLogs: the list has the logs of all parties, with the numbers that a question for each party
// gets, on as many pages as it takes, and no key and no hidden value.
func TestLogs(t *testing.T) {
	a := newCounted(t, nil)
	for range 3 {
		a.ask(1, "api_key="+plantedKey)
		a.ask(1, "api_key=own-key")
		*a.clock += 10 * time.Second
	}
	a.ask(1, "session_id=private,api_key="+plantedKey)
	a.ask(1, "api_key="+strangersKey, "remote_address=192.0.2.7")
	a.ask(1, "generic=all")
	for i := range 350 {
		a.ask(1, fmt.Sprintf("api_key=%s,route=r%d", plantedKey, i))
	}
	before := dump(t, a.store)
	all := a.logPages()
	if got := dump(t, a.store); !reflect.DeepEqual(got, before) {
		t.Error("the list has changed the store")
	}
	for _, id := range []string{"acme", "own"} {
		for _, want := range a.pages(Query{Subject: id}).Limits {
			if want.Used == 0 {
				continue
			}
			found := false
			for _, got := range all {
				if got.Subject == id && got.Log == want.Log && got.Policy == want.Policy && got.Window == want.Window {
					found = true
					if got.Used != want.Used || got.Limit != want.Limit || got.Tier != want.Tier || got.Override != want.Override || !slices.Equal(got.History, want.History) || got.Shadow != want.Shadow {
						t.Errorf("%s: %+v, want %+v", id, got, want)
					}
				}
			}
			if !found {
				t.Errorf("%s: %s is not in the list", id, want.line())
			}
		}
	}
	for _, key := range []string{
		"per-key|acme||5 per 1m", "per-key|acme||20 per 1h", "per-key|own||7 per 1m", "per-key||address=192.0.2.7|3 per 1m",
		"address||remote_address=192.0.2.7|9 per 1m", "sessions|acme|session_id=***|4 per 1m", "all|||9 per 1m", "routes|acme|route=r349|4 per 1m",
	} {
		if all[key].Used == 0 {
			t.Errorf("the list lacks %s", key)
		}
	}
	if len(all) != 350+7 {
		t.Errorf("%d logs, want %d", len(all), 350+7)
	}
	text, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{plantedKey, strangersKey, "own-key", "private"} {
		if strings.Contains(string(text), secret) {
			t.Errorf("the list has %s", secret)
		}
	}
	if one, two := a.logPages("all"), a.logPages("per-key", "all"); len(one) != 1 || len(two) != 5 {
		t.Errorf("%d logs of one rule and %d of two, want 1 and 5", len(one), len(two))
	}
}

// TestLogsRefused: what is not a rule or a cursor is refused, and a store that does not answer is told.
func TestLogsRefused(t *testing.T) {
	a := newCounted(t, func(o *Options) { o.Keeper = &brokenKeeper{Keeper: o.Keeper, list: errors.New("down")} })
	for _, q := range []LogsQuery{{Rules: []string{"nothing"}}, {Rules: []string{""}}, {Cursor: "x"}, {Cursor: "!"}, {Cursor: strings.Repeat("A", maxCursor+1)}} {
		var invalid *InvalidError
		if _, err := a.Logs(t.Context(), q); !errors.As(err, &invalid) {
			t.Errorf("%+v: got %v", q, err)
		}
	}
	if _, err := a.Logs(t.Context(), LogsQuery{}); err == nil || !strings.Contains(err.Error(), "the memory store cannot list its logs") {
		t.Errorf("got %v", err)
	}
}

// TestLogsWithoutTiers: the key of an entry says whether its values may be API keys.
func TestLogsWithoutTiers(t *testing.T) {
	a := newCounted(t, nil)
	rules := policy.NewRules(policy.Identity{Secrets: tier.NewSecrets([]string{"api_key", "x-customer"}, nil)})
	for _, key := range []string{"path", "api_key", "x-my-token"} {
		if err := rules.Add(policy.Rule{Domain: "edge", Name: key, Path: pathOf(key), Terms: policy.Terms{Limits: []policy.Limit{limitOf(5, time.Minute)}}}); err != nil {
			t.Fatal(err)
		}
	}
	a.rules = rules
	a.decider = policy.NewDecider(rules, policy.Options{Store: a.store, Log: zap.NewNop()})
	for _, request := range []string{"path=/x", "api_key=" + strangersKey, "x-my-token=" + strangersKey} {
		a.ask(1, request)
	}
	page, err := a.Logs(t.Context(), LogsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range page.Logs {
		got = append(got, l.Values)
	}
	slices.Sort(got)
	if want := []string{"key=***", "path=/x", "x-my-token=***"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if text := fmt.Sprintf("%+v", page); strings.Contains(text, strangersKey) {
		t.Errorf("the key is in %s", text)
	}
}

// colliding returns values that give the names of logs one xxhash which are a prefix and a value. Of two
// rounds of a lane of the hash, the second takes back what the value has changed in the first.
func colliding(prefix string, n int) (values []string) {
	const prime1, prime2, alphabet = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.@"
	inverse := invert(prime2)
	round := func(lane, word uint64) uint64 { return bits.RotateLeft64(lane+word*prime2, 31) * prime1 }
	pad := strings.Repeat("x", (32-len(prefix)%32)%32)
	lane := uint64(prime1)
	lane += prime2
	for at := prefix + pad; at != ""; at = at[32:] {
		lane = round(lane, binary.LittleEndian.Uint64([]byte(at)))
	}
	var first, second [8]byte
	same := round(round(lane, 0x7878787878787878), 0x7878787878787878)
	before := bits.RotateLeft64(same*invert(prime1), -31)
	for i := 0; len(values) < n; i++ {
		for j, rest := 0, i; j < len(first); j, rest = j+1, rest/len(alphabet) {
			first[j] = alphabet[rest%len(alphabet)]
		}
		binary.LittleEndian.PutUint64(second[:], (before-round(lane, binary.LittleEndian.Uint64(first[:])))*inverse)
		if strings.Trim(string(second[:]), alphabet) == "" {
			values = append(values, pad+string(first[:])+strings.Repeat("y", 24)+string(second[:])+strings.Repeat("z", 24))
		}
	}
	return values
}

// invert returns the inverse of an odd number.
func invert(n uint64) uint64 {
	inverse := uint64(1)
	for range 6 {
		inverse *= 2 - n*inverse
	}
	return inverse
}

// TestLogsThatCollide: a client chooses values, and must not hide a log behind another one by that.
func TestLogsThatCollide(t *testing.T) {
	const prefix, logs = "{id.acme}:edge|api_key/route:id.acme,", pageLimits + 50
	a := newCounted(t, nil)
	values := colliding(prefix, logs)
	for _, v := range values {
		if one, other := xxhash.Sum64String(prefix+values[0]), xxhash.Sum64String(prefix+v); one != other {
			t.Fatalf("the hashes of %s and %s differ", values[0], v)
		}
		a.ask(1, "api_key="+plantedKey+",route="+v)
	}
	all := a.logPages()
	limits := a.pages(Query{Subject: "acme", Rule: "routes"}).Limits
	for _, v := range values {
		if all["routes|acme|route="+v+"|4 per 1m"].Used != 1 {
			t.Fatalf("%d logs of %d are in the list of all, not that of %s", len(all), logs, v)
		}
	}
	if len(limits) != logs {
		t.Errorf("%d logs of %d are in the list of the subject", len(limits), logs)
	}
}
