// Package document keeps a text in Redis that processes share, and replace as a whole ([Document]).
package document

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/slidegate/slidegate/pkg/window/redisstore/failure"
	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/script"
)

const (
	// MaxBytes is the length of the longest document, in bytes.
	MaxBytes = 1 << 20
	// versionLen is the length of the version that a document begins with. document.lua has it, too.
	versionLen = 16
	// timeout bounds each call for a document.
	timeout = time.Second
)

// A Document is a text that all processes with one key have together. It is safe for concurrent use.
type Document struct {
	client script.Client
	key    string
}

// New returns the document under a key, which is not that of a log.
func New(client script.Client, key string) *Document { return &Document{client, key} }

// Load returns the document and its version. If it still has the version known, data is nil. Without a
// document both are empty. It reads no more of a document than its version if that is known, and nothing
// of one that is too long: then the error comes with its version.
func (d *Document) Load(ctx context.Context, known string) (version string, data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	head := redis.NewStringCmd(ctx, "getrange", d.key, 0, versionLen-1)
	if err := d.client.Process(ctx, head); err != nil {
		return "", nil, classified(err)
	}
	if version = head.Val(); version == known || version == "" {
		return version, nil, nil
	}
	length := redis.NewIntCmd(ctx, "strlen", d.key)
	if err := d.client.Process(ctx, length); err != nil {
		return "", nil, classified(err)
	}
	if length.Val() > MaxBytes {
		return version, nil, &failure.Error{Class: failure.Reply, Err: fmt.Errorf("%s has %d bytes, and at most %d are allowed", d.key, length.Val(), MaxBytes)}
	}
	whole := redis.NewStringCmd(ctx, "getrange", d.key, 0, MaxBytes-1)
	if err := d.client.Process(ctx, whole); err != nil {
		return "", nil, classified(err)
	}
	text := whole.Val() // it may be another document by now
	at := min(versionLen, len(text))
	return text[:at], []byte(text[at:]), nil
}

// Swap replaces the document if it has the version before, which is empty if there is none. The new one
// expires. It returns the new version, or false if the document has another version.
func (d *Document) Swap(ctx context.Context, before string, data []byte, expires time.Duration) (version string, swapped bool, err error) {
	if len(data) > MaxBytes-versionLen {
		return "", false, fmt.Errorf("the document has %d bytes, and at most %d are allowed", len(data), MaxBytes-versionLen)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var id [versionLen / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	version = hex.EncodeToString(id[:])
	reply, err := script.Document.Run(ctx, d.client, []string{d.key}, before, version+string(data), max(expires.Milliseconds(), 1))
	if err != nil {
		return "", false, classified(err)
	}
	return version, reply == int64(1), nil
}

func classified(err error) error {
	return &failure.Error{Class: failure.Classify(err), Err: err}
}
