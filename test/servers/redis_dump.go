package servers

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// RedisAt returns a client of a Redis.
func RedisAt(t *testing.T, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { c.Close() })
	return c
}

// DumpRedis returns every key that begins with prefix, with its value as DUMP returns
// it.
func DumpRedis(t *testing.T, addr, prefix string) string {
	t.Helper()
	c := RedisAt(t, addr)
	keys, err := c.Keys(t.Context(), prefix+"*").Result()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, key := range keys {
		value, err := c.Dump(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		all.WriteString(key + " " + value + "\n")
	}
	return all.String()
}
