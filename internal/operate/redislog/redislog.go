// Package redislog prints a log in Redis, for operators. [Print] finds the log by its whole name in
// Redis, and writes its entries, its bucket, or its requests in flight as text.
package redislog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/redisclient"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/inspect"
	"github.com/slidegate/slidegate/pkg/window/packed"
	"github.com/slidegate/slidegate/pkg/window/redisstore"
)

// timeout bounds Print. A person waits for it.
const timeout = 5 * time.Second

// Print writes to w the content of a log in the Redis of a scope of the settings. key is the whole name
// of the log, as SCAN prints it. Print writes the newest entries, oldest first, or the active requests that
// end last, at most as many as entries says. A negative number means all.
func Print(ctx context.Context, s settings.Settings, scope, key string, entries int, w io.Writer) error {
	if s.Store.Type != settings.StoreRedis {
		return fmt.Errorf("store.type is %s in these settings, but rls usage --raw reads only Redis; give it the settings of the service with --config or SLIDEGATE_ variables", s.Store.Type)
	}
	names := s.Store.Scopes.Names()
	number := slices.Index(names, scope)
	if number < 0 {
		return fmt.Errorf("--scope: %s", strict.NotOneOf(scope, names))
	}
	at, section := s.Store.RedisOf(window.Scope(number))
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	client, err := redisclient.New(redisclient.Options{Redis: *at, Section: section, Timeout: timeout, Log: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // it only read

	pipe := client.Pipeline()
	life, value := pipe.PTTL(ctx, key), pipe.Get(ctx, key)
	_, err = pipe.Exec(ctx)
	var now time.Time
	if err == nil {
		now, err = client.Time(ctx).Result() // on a cluster that of any server
	}
	switch {
	case errors.Is(err, redis.Nil):
		return fmt.Errorf("no key %q in Redis; names begin with %s.key_prefix, here %q, and Redis deletes idle logs", key, section, at.KeyPrefix)
	case redis.HasErrorPrefix(err, "WRONGTYPE"):
		return fmt.Errorf("the value of %q is not a log: it is not a string", key)
	case err != nil:
		return fmt.Errorf("%s.url: Redis does not answer as expected: %w", section, err)
	}
	log, err := packed.Decode([]byte(value.Val()))
	if err != nil {
		return fmt.Errorf("the value of %q: %w", key, err)
	}

	fmt.Fprintf(w, "key      %s\n", key)
	if id, ok := redisstore.ParseKeyName(key); ok && id.Policy == log.Policy {
		r := inspect.NewReading(id, time.Duration(now.UnixMicro())*time.Microsecond, []byte(value.Val()))
		fmt.Fprintln(w, counts(&r))
	}
	if life.Val() > 0 {
		fmt.Fprintf(w, "expires  in %s\n", strict.FormatDuration(life.Val()))
	}
	lines := strings.SplitAfter(log.String(), "\n")
	rows := len(log.Entries) + len(log.Holds) // a log has one of the two
	head := len(lines) - 1 - rows             // the last line is empty
	fmt.Fprint(w, strings.Join(lines[:head], ""))
	older := 0
	if entries >= 0 {
		older = max(0, rows-entries)
	}
	switch {
	case older == 0:
	case log.Policy == window.InFlight:
		fmt.Fprintf(w, "  ... %d more, which end earlier\n", older)
	default:
		fmt.Fprintf(w, "  ... %d older ones\n", older)
	}
	fmt.Fprint(w, strings.Join(lines[head+older:], ""))
	return nil
}

// counts returns the line about what a log counts.
func counts(r *inspect.Reading) string {
	switch r.ID.Policy {
	case window.Sliding:
		return fmt.Sprintf("window   %s, of which a cost of %d counts now", rules.FormatWindow(r.ID.Window), r.Used(window.Limit{}))
	case window.TokenBucket:
		return fmt.Sprintf("policy   %v, with a rate for each %s", r.ID.Policy, rules.FormatWindow(r.ID.Window))
	case window.InFlight:
		return fmt.Sprintf("policy   %v, of which a cost of %d is active now", r.ID.Policy, r.Used(window.Limit{}))
	default:
		return fmt.Sprintf("policy   %v with a window of %s, of which a cost of %d counts now", r.ID.Policy, rules.FormatWindow(r.ID.Window), r.Used(window.Limit{}))
	}
}
