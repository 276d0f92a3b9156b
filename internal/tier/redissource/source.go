package redissource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/tier"
)

// Options of a [Source]. Client, Overrides and Log are required.
type Options struct {
	// Client is closed with the source. It must obey the deadlines of contexts
	// (ContextTimeoutEnabled). It may retry, because the source only reads.
	Client redis.UniversalClient
	// KeyPrefix begins the names of all hashes. It may be empty.
	KeyPrefix string
	// Channel is the channel of published changes. Empty: [Source.Watch] reports none.
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

var _ tier.Watcher = (*Source)(nil)

// silence is how long Watch waits for a message before it pings the server, and how long
// the server then has to answer.
const silence = 10 * time.Second

// New returns a source that has not connected yet.
func New(o Options) (*Source, error) {
	if o.Client == nil || o.Overrides == nil || o.Log == nil {
		return nil, errors.New("redissource: a client, a reader of overrides and a log are needed")
	}
	_, cluster := o.Client.(*redis.ClusterClient)
	return &Source{opts: o, marker: o.KeyPrefix + "ready", cluster: cluster, silent: silence}, nil
}

// Close closes the client. Lookups that are under way fail.
func (s *Source) Close() error { return s.opts.Client.Close() }

// Lookup implements [tier.Source]. It never uses the last record.
func (s *Source) Lookup(ctx context.Context, k tier.Key, _ *tier.Record) (*tier.Record, error) {
	if k.Digest == "" {
		if tier.ValidID(k.ID) != nil {
			return &tier.Record{}, nil // no subject has an invalid id
		}
		return s.bySubject(ctx, k.ID)
	}
	name := s.opts.KeyPrefix + "key:" + k.Digest
	hash, err := s.read(ctx, name, "subject", "revoked", "tier", "disabled", "overrides", "labels")
	if err != nil {
		return nil, err
	}
	if len(hash) == 0 {
		return &tier.Record{}, nil
	}
	id, ok := hash["subject"]
	if !ok {
		return nil, fmt.Errorf("tiers.redis: %s: %w: the field subject is missing", name, tier.ErrBadRecord)
	}
	revoked, err := readBool(hash["revoked"])
	if err != nil {
		return nil, fmt.Errorf("tiers.redis: %s: %w: revoked: %w", name, tier.ErrBadRecord, err)
	}
	switch {
	case revoked:
		return &tier.Record{}, nil
	case isWhole(hash):
		return s.record(name, id, hash)
	}
	if err := tier.ValidID(id); err != nil {
		return nil, fmt.Errorf("tiers.redis: %s: %w: subject: %w", name, tier.ErrBadRecord, err)
	}
	return s.bySubject(ctx, id)
}

func (s *Source) bySubject(ctx context.Context, id string) (*tier.Record, error) {
	name := s.opts.KeyPrefix + "subject:" + id
	hash, err := s.read(ctx, name, "tier", "disabled", "overrides", "labels")
	if err != nil {
		return nil, err
	}
	if len(hash) == 0 {
		return &tier.Record{}, nil
	}
	return s.record(name, id, hash)
}

// read reads these fields of a hash and returns those that exist. If none exists and the
// marker does not either, it returns an error.
func (s *Source) read(ctx context.Context, name string, fields ...string) (map[string]string, error) {
	values, ready, err := s.ask(ctx, name, fields)
	switch {
	case err == nil:
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return nil, fmt.Errorf("tiers.redis: %s: %w: it is no hash", name, tier.ErrBadRecord)
	default:
		return nil, fmt.Errorf("tiers.redis: %w", err)
	}
	hash := make(map[string]string, len(fields))
	for i, v := range values {
		if text, ok := v.(string); ok {
			hash[fields[i]] = text
		}
	}
	if len(hash) > 0 {
		return hash, nil
	}
	if s.cluster {
		if ready, err = s.opts.Client.Exists(ctx, s.marker).Result(); err != nil {
			return nil, fmt.Errorf("tiers.redis: %w", err)
		}
	}
	if ready == 0 {
		return nil, fmt.Errorf("tiers.redis: a key was not found, and %[1]s does not exist, so the key is not taken for unknown. Has this Redis lost its data? Are tiers.redis.url and tiers.redis.key_prefix right? When all subjects are there: SET %[1]s 1", s.marker)
	}
	return hash, nil
}

// ask reads the fields of a hash, and in the same round trip whether the marker exists. On
// a Cluster it does not read the marker.
func (s *Source) ask(ctx context.Context, name string, fields []string) (values []any, ready int64, err error) {
	if s.cluster {
		values, err = s.opts.Client.HMGet(ctx, name, fields...).Result()
		return values, 0, err
	}
	p := s.opts.Client.Pipeline()
	hash, marker := p.HMGet(ctx, name, fields...), p.Exists(ctx, s.marker)
	_, err = p.Exec(ctx)
	return hash.Val(), marker.Val(), err
}

// isWhole reports whether the hash of a key is the whole record.
func isWhole(hash map[string]string) bool {
	for _, field := range []string{"tier", "disabled", "overrides", "labels"} {
		if _, ok := hash[field]; ok {
			return true
		}
	}
	return false
}

// record makes a record from the hash with this name.
func (s *Source) record(name, id string, hash map[string]string) (*tier.Record, error) {
	disabled, err := readBool(hash["disabled"])
	if err != nil {
		return nil, fmt.Errorf("tiers.redis: %s: %w: disabled: %w", name, tier.ErrBadRecord, err)
	}
	subject, err := tier.NewSubject(tier.Parts{
		ID:        id,
		Tier:      hash["tier"],
		Disabled:  disabled,
		Overrides: []byte(hash["overrides"]),
		Labels:    []byte(hash["labels"]),
	}, s.opts.Overrides)
	if err != nil {
		return nil, fmt.Errorf("tiers.redis: %s: %w", name, err)
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
	if s.opts.Channel == "" {
		<-ctx.Done()
		return ctx.Err()
	}
	err := s.listen(ctx, s.opts.Client.Subscribe(ctx, s.opts.Channel), ready, changed)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("tiers.redis.channel: listening on %s: %w", s.opts.Channel, err)
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
