package redissource

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/tiertest"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

const (
	prefix  = "slidegate:tier:"
	channel = "slidegate:tiers"

	// patience is how long a test waits for its own writes on a busy machine. A message
	// must not be sent twice.
	patience = 30 * time.Second
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newClient returns a client with the options of the service, which waits for an answer for
// this time.
func newClient(timeout time.Duration, addresses ...string) redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs:                    addresses,
		Protocol:                 2,
		MaxRetries:               -1,
		ContextTimeoutEnabled:    true,
		DialTimeout:              time.Second,
		ReadTimeout:              timeout,
		DialerRetries:            1,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if len(addresses) > 1 {
		return redis.NewClusterClient(o.Cluster())
	}
	return redis.NewClient(o.Simple())
}

func newSource(t *testing.T, log *zap.Logger, addresses ...string) *Source {
	t.Helper()
	return New(Options{
		Client:    newClient(500*time.Millisecond, addresses...),
		KeyPrefix: prefix,
		Channel:   channel,
		Overrides: tiertest.ReadOverrides,
		Log:       log,
	})
}

// fields returns the fields of a subject's hash.
func fields(s tier.Subject) []any {
	f := []any{"tier", s.Tier}
	if s.Disabled {
		f = append(f, "disabled", "1")
	}
	if o := tiertest.Overrides(s); o != nil {
		f = append(f, "overrides", o)
	}
	if l := tiertest.Labels(s); l != nil {
		f = append(f, "labels", l)
	}
	if l := tiertest.Limits(s); l != nil {
		f = append(f, "limits", l)
	}
	return f
}

// write runs commands on a client of its own: together, but one by one on a cluster.
func write(t *testing.T, addresses []string, commands func(redis.Pipeliner)) {
	t.Helper()
	c := newClient(patience, addresses...)
	defer c.Close()
	deadline := time.Now().Add(patience)
	for {
		run := c.TxPipelined
		if len(addresses) > 1 {
			run = c.Pipelined
		}
		_, err := run(t.Context(), func(p redis.Pipeliner) error {
			commands(p)
			return nil
		})
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// publish publishes changes.
func publish(t *testing.T, addresses []string, payload string) {
	t.Helper()
	c := newClient(patience, addresses...)
	defer c.Close()
	if err := c.Publish(t.Context(), channel, payload).Err(); err != nil {
		t.Fatal(err)
	}
}

// fixture returns a source with a Redis server.
func fixture(t *testing.T, addresses ...string) tiertest.Fixture {
	keys := make(map[string][]string) // digests by id
	ready := func(p redis.Pipeliner) { p.Set(t.Context(), prefix+"ready", "1", 0) }
	write(t, addresses, ready)
	t.Cleanup(func() { dialled(t) })
	return tiertest.Fixture{
		Source: newSource(t, zap.NewNop(), addresses...),
		Put: func(t *testing.T, s tier.Subject, digests ...string) {
			t.Helper()
			keys[s.ID] = append(keys[s.ID], digests...)
			write(t, addresses, func(p redis.Pipeliner) {
				ready(p) // the server may have lost the marker
				p.Del(t.Context(), prefix+"subject:"+s.ID)
				p.HSet(t.Context(), prefix+"subject:"+s.ID, fields(s)...)
				for _, d := range keys[s.ID] {
					p.Del(t.Context(), prefix+"key:"+d)
					p.HSet(t.Context(), prefix+"key:"+d, "subject", s.ID)
				}
			})
			publish(t, addresses, fmt.Sprintf(`{"subject":%q}`, s.ID))
		},
		Remove: func(t *testing.T, digest string) {
			t.Helper()
			write(t, addresses, func(p redis.Pipeliner) {
				p.HSet(t.Context(), prefix+"key:"+digest, "revoked", "true")
			})
			publish(t, addresses, digest)
		},
		RemoveSubject: func(t *testing.T, id string) {
			t.Helper()
			write(t, addresses, func(p redis.Pipeliner) { p.Del(t.Context(), prefix+"subject:"+id) })
			publish(t, addresses, `{"all":true}`)
		},
		Corrupt: func(t *testing.T, digest string) {
			t.Helper()
			write(t, addresses, func(p redis.Pipeliner) {
				p.Set(t.Context(), prefix+"key:"+digest, "rubbish", 0)
			})
		},
		Forgets: true,
	}
}

// dialled waits for the library's goroutine that dials after many failures. It sleeps for
// a second before it sees that the client is closed.
func dialled(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		var all strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(all.String(), ".tryDial(") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a goroutine still dials")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestSource(t *testing.T) {
	tiertest.Run(t, func(t *testing.T) tiertest.Fixture {
		server := servers.StartRedis(t)
		f := fixture(t, server.Addr())
		f.Stop = func(*testing.T) { server.Stop() }
		f.Start = func(*testing.T) { server.Start() }
		f.Freeze = func(*testing.T) { server.Pause() }
		f.Thaw = func(*testing.T) { server.Resume() }
		return f
	})
}

// TestCluster proves that a key and its subject may be on different nodes, and that a
// message to one node reaches the watcher.
func TestCluster(t *testing.T) {
	cluster := servers.StartCluster(t)
	f := fixture(t, cluster.Addrs()...)
	source := f.Source.(*Source)
	defer source.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ready, told, ended := make(chan struct{}), make(chan tier.Change, 100), make(chan error)
	go func() {
		ended <- source.Watch(ctx, func() { close(ready) }, func(c tier.Change) { told <- c })
	}()
	<-ready
	for i := range 20 {
		want := tier.Subject{ID: fmt.Sprint("subject ", i), Tier: "pro"}
		digest := fmt.Sprintf("%064x", i)
		f.Put(t, want, digest)
		if c := <-told; c.ID != want.ID {
			t.Errorf("told of %+v, want %s", c, want.ID)
		}
		r, err := source.Lookup(t.Context(), tier.Key{Digest: digest})
		for deadline := time.Now().Add(patience); err != nil && time.Now().Before(deadline); {
			// A node of a busy machine may answer late. The source does not ask again: its
			// callers do.
			t.Logf("Lookup: %v", err)
			r, err = source.Lookup(t.Context(), tier.Key{Digest: digest})
		}
		if err != nil || !cmp.Equal(&want, r.Subject) {
			t.Errorf("Lookup = %+v, %v; want %+v", r, err, want)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch: %v", err)
	}
}

// TestRecords reads records as operators may write them.
func TestRecords(t *testing.T) {
	server := servers.StartRedis(t)
	digest := strings.Repeat("ab", 32)
	for _, tt := range []struct {
		name         string
		key, subject []string // fields; nil: no hash
		want         *tier.Subject
		bad          string
	}{
		{"no subject", []string{"subject", "acme"}, nil, nil, ""},
		{"only a tier", []string{"subject", "acme"}, []string{"tier", "pro"}, &tier.Subject{ID: "acme", Tier: "pro"}, ""},
		{"the default tier", []string{"subject", "acme"}, []string{"disabled", "0"}, &tier.Subject{ID: "acme"}, ""},
		{"other fields", []string{"subject", "acme", "name", "x", "tier", "free"}, []string{"tier", "", "since", "2024", "subject", "x", "revoked", "1"}, &tier.Subject{ID: "acme"}, ""},
		{"a key of other fields alone", []string{"name", "x"}, []string{"tier", "pro"}, nil, ""},
		{"a subject of other fields alone", []string{"subject", "acme"}, []string{"since", "2024", "subject", "x", "revoked", "1"}, nil, ""},
		{"revoked", []string{"subject", "acme", "revoked", "1"}, []string{"tier", "pro"}, nil, ""},
		{"not revoked", []string{"subject", "acme", "revoked", "false"}, []string{"tier", "pro", "disabled", "true"}, &tier.Subject{ID: "acme", Tier: "pro", Disabled: true}, ""},
		{"without a subject", []string{"revoked", "0"}, nil, nil, "key:" + digest + ": bad record: the field subject is missing"},
		{"an invalid subject", []string{"subject", "é"}, nil, nil, "key:" + digest + ": bad record: subject: byte 1 is 0xc3"},
		{"an empty subject", []string{"subject", ""}, nil, nil, "key:" + digest + ": bad record: subject: it is empty"},
		{"revoked or not", []string{"subject", "acme", "revoked", "yes"}, nil, nil, "key:" + digest + ": bad record: revoked: it must be"},
		{"disabled or not", []string{"subject", "acme"}, []string{"disabled", "no"}, nil, "subject:acme: bad record: disabled: it must be"},
		{"bad overrides", []string{"subject", "acme"}, []string{"overrides", "["}, nil, "subject:acme: bad record: subject \"acme\": overrides: "},
		{"bad labels", []string{"subject", "acme"}, []string{"labels", "[]"}, nil, "subject:acme: bad record: subject \"acme\": labels: it is no JSON object"},
		{"bad tier", []string{"subject", "acme"}, []string{"tier", "\n"}, nil, "subject:acme: bad record: subject \"acme\": tier: byte 1 is a control character"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(t, []string{server.Addr()}, func(p redis.Pipeliner) {
				p.FlushAll(t.Context())
				p.Set(t.Context(), prefix+"ready", "1", 0)
				if tt.key != nil {
					p.HSet(t.Context(), prefix+"key:"+digest, tt.key)
				}
				if tt.subject != nil {
					p.HSet(t.Context(), prefix+"subject:acme", tt.subject)
				}
			})
			s := newSource(t, zap.NewNop(), server.Addr())
			defer s.Close()
			r, err := s.Lookup(t.Context(), tier.Key{Digest: digest})
			switch {
			case tt.bad != "":
				if !errors.Is(err, tier.ErrBadRecord) || !strings.HasPrefix(err.Error(), "tiers.redis: "+prefix+tt.bad) {
					t.Errorf("Lookup = %+v, %v; want %q", r, err, tt.bad)
				}
			case err != nil:
				t.Error(err)
			default:
				if diff := cmp.Diff(tt.want, r.Subject, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		})
	}
	t.Run("a subject of another type", func(t *testing.T) {
		write(t, []string{server.Addr()}, func(p redis.Pipeliner) {
			p.FlushAll(t.Context())
			p.HSet(t.Context(), prefix+"key:"+digest, "subject", "acme")
			p.RPush(t.Context(), prefix+"subject:acme", "x")
		})
		s := newSource(t, zap.NewNop(), server.Addr())
		defer s.Close()
		for _, k := range []tier.Key{{Digest: digest}, {ID: "acme"}} {
			_, err := s.Lookup(t.Context(), k)
			if !errors.Is(err, tier.ErrBadRecord) || !strings.Contains(err.Error(), prefix+"subject:acme: bad record: it is no hash") {
				t.Errorf("Lookup(%+v): %v", k, err)
			}
		}
	})
}

// TestMarker proves that without the marker no key becomes unknown, and that existing keys
// are found.
func TestMarker(t *testing.T) {
	for name, start := range map[string]func(*testing.T) []string{
		"server":  func(t *testing.T) []string { return []string{servers.StartRedis(t).Addr()} },
		"cluster": func(t *testing.T) []string { return servers.StartCluster(t).Addrs() },
	} {
		t.Run(name, func(t *testing.T) {
			addresses := start(t)
			s := newSource(t, zap.NewNop(), addresses...)
			defer s.Close()
			known, lost := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
			unknown := []tier.Key{{Digest: strings.Repeat("ef", 32)}, {Digest: lost}, {ID: "lost"}}
			doubted := func(why string) {
				t.Helper()
				for _, k := range unknown {
					r, err := s.Lookup(t.Context(), k)
					if err == nil || errors.Is(err, tier.ErrBadRecord) || !strings.HasPrefix(err.Error(), "tiers.redis: ") || !strings.HasSuffix(err.Error(), "SET "+prefix+"ready 1") {
						t.Errorf("%s: Lookup(%+v) = %+v, %v; want an error that says what to do", why, k, r, err)
					}
				}
			}
			doubted("an empty Redis")
			revoked := strings.Repeat("12", 32)
			write(t, addresses, func(p redis.Pipeliner) {
				p.HSet(t.Context(), prefix+"key:"+known, "subject", "acme")
				p.HSet(t.Context(), prefix+"subject:acme", "tier", "pro")
				p.HSet(t.Context(), prefix+"key:"+lost, "subject", "lost")
				p.HSet(t.Context(), prefix+"key:"+revoked, "subject", "acme", "revoked", "1")
				p.Set(t.Context(), "ready", "1", 0) // the marker of another prefix
			})
			doubted("half a Redis")
			acme := &tier.Subject{ID: "acme", Tier: "pro"}
			for k, want := range map[tier.Key]*tier.Subject{{Digest: known}: acme, {ID: "acme"}: acme, {Digest: revoked}: nil} {
				if r, err := s.Lookup(t.Context(), k); err != nil || !cmp.Equal(want, r.Subject) {
					t.Errorf("Lookup(%+v) = %+v, %v; want %+v", k, r, err, want)
				}
			}
			write(t, addresses, func(p redis.Pipeliner) { p.HSet(t.Context(), prefix+"ready", "since", "2024") })
			for _, k := range unknown {
				if r, err := s.Lookup(t.Context(), k); err != nil || r.Subject != nil {
					t.Errorf("Lookup(%+v) = %+v, %v; want no subject", k, r, err)
				}
			}
		})
	}
}

// TestOtherFieldsStay proves that other fields in the hashes are not read.
func TestOtherFieldsStay(t *testing.T) {
	server := servers.StartRedis(t)
	digest := strings.Repeat("ab", 32)
	sent := func() (n int) {
		t.Helper()
		stats, err := server.Do("INFO", "stats")
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(stats, "total_net_output_bytes:")
		if _, err := fmt.Sscan(text, &n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	large := strings.Repeat("x", 4<<20)
	write(t, []string{server.Addr()}, func(p redis.Pipeliner) {
		p.HSet(t.Context(), prefix+"key:"+digest, "subject", "acme", "invoices", large)
		p.HSet(t.Context(), prefix+"subject:acme", "tier", "pro", "invoices", large)
	})
	s := newSource(t, zap.NewNop(), server.Addr())
	defer s.Close()
	before := sent()
	r, err := s.Lookup(t.Context(), tier.Key{Digest: digest})
	if err != nil || r.Subject == nil || r.Subject.Tier != "pro" {
		t.Fatalf("Lookup = %+v, %v", r, err)
	}
	if n := sent() - before; n > len(large)/2 {
		t.Errorf("Redis sent %d bytes", n)
	}
}

// TestRefused proves that a refused connection is no bad record, and that its error names
// the cause.
func TestRefused(t *testing.T) {
	server := servers.StartRedis(t)
	if _, err := server.Do("ACL", "SETUSER", "default", "-@all", "+ping"); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, zap.NewNop(), server.Addr())
	defer s.Close()
	_, err := s.Lookup(t.Context(), tier.Key{ID: "acme"})
	if err == nil || errors.Is(err, tier.ErrBadRecord) || !strings.HasPrefix(err.Error(), "tiers.redis: NOPERM") || !strings.Contains(err.Error(), "hmget") {
		t.Errorf("Lookup: %v", err)
	}
	err = s.Watch(t.Context(), func() { t.Error("ready") }, func(tier.Change) {})
	if err == nil || !strings.HasPrefix(err.Error(), "tiers.redis: listening on "+channel+": NOPERM") {
		t.Errorf("Watch: %v", err)
	}
}

// page returns the part of docs/customers.md about Redis.
func page(t *testing.T) string {
	t.Helper()
	text := tree.Text(t, "../../../../docs/customers.md")
	_, section, ok := strings.Cut(text, "\n### Redis\n")
	if !ok {
		t.Fatal("docs/customers.md has no section on Redis")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// moreCommands are commands that the page leaves out.
const moreCommands = `

redis-cli HSET slidegate:tier:key:$DIGEST2 subject acme
redis-cli HSET slidegate:tier:subject:acme tier free
redis-cli PUBLISH slidegate:tiers '{"subject":"acme"}'

redis-cli DEL slidegate:tier:subject:acme
redis-cli PUBLISH slidegate:tiers '{"subject":"acme"}'
`

// TestCommandsOfTheDocs runs the commands of docs/customers.md, then more of them, and checks the
// result of each part.
func TestCommandsOfTheDocs(t *testing.T) {
	server := servers.StartRedis(t)
	s := newSource(t, zap.NewNop(), server.Addr())
	defer s.Close()
	w := start(t, s)
	<-w.ready
	one, two := strings.Repeat("1", tier.DigestLen), strings.Repeat("2", tier.DigestLen)
	_, block, _ := strings.Cut(page(t), "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	pro := &tier.Subject{ID: "acme", Tier: "pro", Extra: &tier.Extra{Labels: map[string]string{"region": "eu"}}}
	free := &tier.Subject{ID: "acme", Tier: "free", Extra: pro.Extra}
	steps := strings.Split(strings.TrimSpace(block)+moreCommands, "\n\n")
	wants := []struct {
		one, two *tier.Subject
		told     tier.Change
	}{
		{pro, nil, tier.Change{ID: "acme"}},
		{nil, nil, tier.Change{Digest: one}},
		{nil, free, tier.Change{ID: "acme"}},
		{nil, nil, tier.Change{ID: "acme"}},
	}
	if len(steps) != len(wants) {
		t.Fatalf("%d parts, want %d", len(steps), len(wants))
	}
	word := regexp.MustCompile(`'[^']*'|\S+`)
	for i, step := range steps {
		for line := range strings.Lines(step) {
			command, ok := strings.CutPrefix(line, "redis-cli ")
			if !ok {
				continue
			}
			words := word.FindAllString(strings.NewReplacer("$DIGEST2", two, "$DIGEST", one).Replace(command), -1)
			for i := range words {
				words[i] = strings.Trim(words[i], "'")
			}
			if _, err := server.Do(words...); err != nil {
				t.Fatal(err)
			}
		}
		if c := <-w.told; c != wants[i].told {
			t.Errorf("part %d: told of %+v, want %+v", i+1, c, wants[i].told)
		}
		for digest, want := range map[string]*tier.Subject{one: wants[i].one, two: wants[i].two} {
			r, err := s.Lookup(t.Context(), tier.Key{Digest: digest})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, r.Subject, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("part %d: %.1s: (-want +got)\n%s", i+1, digest, diff)
			}
		}
	}
}

// TestLeastRights proves that the rights in docs/customers.md are enough.
func TestLeastRights(t *testing.T) {
	server := servers.StartRedis(t)
	line := regexp.MustCompile(`(?m)^ACL SETUSER tiers .*$`).FindString(page(t))
	line = strings.NewReplacer(" tiers on", " default reset on", ">PASSWORD", "nopass").Replace(line)
	if _, err := server.Do(strings.Fields(line)...); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, zap.NewNop(), server.Addr())
	s.silent = 20 * time.Millisecond
	defer s.Close()
	if _, err := server.Do("HSET", prefix+"subject:acme", "tier", "pro"); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Lookup(t.Context(), tier.Key{ID: "acme"}); err != nil || r.Subject == nil || r.Subject.Tier != "pro" {
		t.Errorf("Lookup = %+v, %v", r, err)
	}
	if _, err := server.Do("SET", prefix+"ready", "1"); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Lookup(t.Context(), tier.Key{ID: "unknown"}); err != nil || r.Subject != nil {
		t.Errorf("Lookup = %+v, %v", r, err)
	}
	w := start(t, s)
	<-w.ready
	pinged(t, server)
	w.cancel()
	if err := <-w.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Watch: %v", err)
	}
}

// pinged waits until the server has received several PINGs.
func pinged(t *testing.T, server *servers.RedisServer) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		stats, err := server.Do("INFO", "commandstats")
		if err != nil {
			t.Fatal(err)
		}
		_, ping, _ := strings.Cut(stats, "cmdstat_ping:calls=")
		var calls int
		_, _ = fmt.Sscan(ping[:max(0, strings.IndexByte(ping, ','))], &calls) // zero without a PING
		if calls >= 3 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("no PING on a silent connection")
		}
		time.Sleep(time.Millisecond)
	}
}

// running is a call of Watch.
type running struct {
	ready  chan struct{}
	told   chan tier.Change
	ended  chan error
	cancel context.CancelFunc
}

func start(t *testing.T, s *Source) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	w := &running{make(chan struct{}), make(chan tier.Change, 100), make(chan error, 1), cancel}
	go func() {
		w.ended <- s.Watch(ctx, func() { close(w.ready) }, func(c tier.Change) { w.told <- c })
	}()
	return w
}

// TestWatchSilence proves that Watch ends if the server does not answer, and goes on if
// there is only no message.
func TestWatchSilence(t *testing.T) {
	server := servers.StartRedis(t)
	s := newSource(t, zap.NewNop(), server.Addr())
	s.silent = 200 * time.Millisecond
	defer s.Close()
	w := start(t, s)
	<-w.ready
	pinged(t, server)
	if _, err := server.Do("PUBLISH", channel, `{"subject":"acme"}`); err != nil {
		t.Fatal(err)
	}
	if c := <-w.told; c != (tier.Change{ID: "acme"}) {
		t.Errorf("told of %+v", c)
	}
	server.Pause()
	defer server.Resume()
	if err := <-w.ended; err == nil {
		t.Error("Watch ended without an error although the server is frozen")
	}
}

// TestWatchNeverSubscribed proves that Watch ends if a server accepts the connection and
// never answers.
func TestWatchNeverSubscribed(t *testing.T) {
	server := servers.StartRedis(t)
	s := newSource(t, zap.NewNop(), server.Addr())
	s.silent = 200 * time.Millisecond
	defer s.Close()
	server.Pause()
	defer server.Resume()
	w := start(t, s)
	if err := <-w.ended; err == nil {
		t.Error("Watch ended without an error although the server is frozen")
	}
}

func TestWatchPayloads(t *testing.T) {
	server := servers.StartRedis(t)
	core, lines := observer.New(zap.WarnLevel)
	s := newSource(t, zap.New(core), server.Addr())
	defer s.Close()
	w := start(t, s)
	<-w.ready
	digest := strings.Repeat("ab", 32)
	for payload, want := range map[string]tier.Change{
		digest:                        {Digest: digest},
		`{"digest":"` + digest + `"}`: {Digest: digest},
		`{"subject":"acme"}`:          {ID: "acme"},
		`{"all":true}`:                {},
		"sk-planted":                  {},
		"":                            {},
	} {
		if _, err := server.Do("PUBLISH", channel, payload); err != nil {
			t.Fatal(err)
		}
		if c := <-w.told; c != want {
			t.Errorf("%q: told of %+v, want %+v", payload, c, want)
		}
	}
	if lines.Len() != 2 {
		t.Errorf("%d lines in the log, want one for each message that is no change", lines.Len())
	}
	for _, line := range lines.All() {
		if strings.Contains(fmt.Sprint(line), "sk-planted") {
			t.Errorf("the log repeats what may be a key: %v", line)
		}
	}
}
