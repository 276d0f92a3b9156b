package redisstore

import (
	"context"
)

// A held says what a request on several slots has recorded in a receipt.
type held struct {
	key  string
	did  uint64 // receiptMade, receiptRepeated, or 0
	ends int64  // by the server's clock, in microseconds
}

// undo takes back what was recorded in a receipt, because the request was denied on another slot. It
// returns whether the charge of the receipt is to be taken back too. It is not if there was none, if
// another request has repeated it since, and if the server could not say.
func (s *Store) undo(h *held) bool {
	if h.did == 0 {
		return true // a charge without a receipt
	}
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	n := s.single
	if n == nil {
		var err error
		if n, err = s.nodeFor(ctx, h.key, now()+int64(takeBackTimeout)); err != nil {
			return false
		}
	}
	what := "made"
	if h.did == receiptRepeated {
		what = "repeat"
	}
	charged, err := runOn[int64](ctx, s, n, &s.undoes, h.key, what, string(appendInstant(nil, h.ends)))
	return err == nil && charged == 1
}
