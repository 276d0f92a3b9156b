package document

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/test/servers"
)

// TestDocument replaces a document in Redis, and reads what other programs have written there.
func TestDocument(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr()})
	defer client.Close()
	ctx, d := t.Context(), New(client, "p:notes")
	load := func(known, version, data string) {
		t.Helper()
		v, b, err := d.Load(ctx, known)
		if err != nil || v != version || string(b) != data {
			t.Errorf("Load = %q, %q, %v, want %q, %q", v, b, err, version, data)
		}
	}
	load("", "", "")
	one, ok, err := d.Swap(ctx, "", []byte("[1]"), time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	load("", one, "[1]")
	load(one, one, "")
	if _, ok, err := d.Swap(ctx, "", []byte("[2]"), time.Hour); ok || err != nil {
		t.Errorf("replaced although it has another version: %v, %v", ok, err)
	}
	two, ok, err := d.Swap(ctx, one, []byte("[2]"), 3*time.Second)
	if err != nil || !ok || two == one {
		t.Fatal(ok, err)
	}
	load(one, two, "[2]")
	if ttl := client.PTTL(ctx, "p:notes").Val(); ttl <= 0 || ttl > 3*time.Second {
		t.Errorf("it expires in %v", ttl)
	}
	client.Set(ctx, "p:notes", "short", 0)
	load(two, "short", "")
	client.Set(ctx, "p:notes", strings.Repeat("x", MaxBytes+1), 0)
	if v, b, err := d.Load(ctx, two); err == nil || b != nil || v != strings.Repeat("x", 16) {
		t.Errorf("a long one: %q, %d bytes, %v", v, len(b), err)
	}
	if _, ok, err := d.Swap(ctx, strings.Repeat("x", 16), []byte("[3]"), time.Hour); !ok || err != nil {
		t.Errorf("a long one is not replaced: %v, %v", ok, err)
	}
	client.Del(ctx, "p:notes")
	client.SAdd(ctx, "p:notes", "x")
	if _, _, err := d.Load(ctx, ""); err == nil {
		t.Error("a set is a document")
	}
	if _, _, err := d.Swap(ctx, "", make([]byte, MaxBytes), time.Hour); err == nil {
		t.Error("a document of 1 MiB was written")
	}
}
