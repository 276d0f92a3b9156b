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

// undo takes back what a piece has recorded in a receipt, because the request was denied on another
// slot. It returns whether the charge of the piece is to be taken back too. It is not if there was
// none, and if another request has repeated it since. After an error the charge stays.
func (s *Store) undo(p *piece) (charged bool, err error) {
	h := &p.receipt
	if h.did == 0 {
		return true, nil // a charge without a receipt
	}
	defer func() {
		if err != nil {
			s.counts.notTakenBack.Add(p.held.Cost)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	n := s.single
	if n == nil {
		if n, err = s.nodeFor(ctx, h.key, now()+int64(takeBackTimeout)); err != nil {
			return false, err
		}
	}
	what := "made"
	if h.did == receiptRepeated {
		what = "repeat"
	}
	reply, err := runOn[int64](ctx, s, n, &s.undoes, h.key, what, string(appendInstant(nil, h.ends)))
	return reply == 1, err
}
