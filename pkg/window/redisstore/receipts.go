package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"
)

// A held says what a request on several slots has recorded in a receipt.
type held struct {
	key  string
	did  uint64 // receiptMade, receiptRepeated, or 0
	ends int64  // by the server's clock, in microseconds
}

// undo takes back what a piece has recorded in a receipt, because the request was denied on another
// slot. It returns whether a charge is to be taken back too, which the piece then holds. It is not
// if another request holds the charge, by the same receipt. After an error the charge stays.
func (s *Store) undo(p *piece) (charged bool, err error) {
	h := &p.receipt
	if h.did == 0 {
		return true, nil // a charge without a receipt
	}
	defer func() {
		if err != nil {
			s.counts.notTakenBack.Add(p.check.Cost)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), takeBackTimeout)
	defer cancel()
	n, err := s.nodeFor(ctx, h.key, now()+int64(takeBackTimeout))
	if err != nil {
		return false, err
	}
	charge := make([]byte, 0, chargeBytes)
	if h.did == receiptMade {
		charge = appendInstant(binary.BigEndian.AppendUint32(charge, uint32(p.held.Cost)), p.held.Instant)
	}
	reply, err := runOn[string](ctx, s, n, &s.undoes, h.key, string(appendInstant(nil, h.ends)), string(charge))
	switch {
	case err != nil || reply == "":
		return false, err
	case len(reply) != chargeBytes:
		return false, &Error{Class: ClassReply, Err: fmt.Errorf("reply has %d bytes, want %d or none", len(reply), chargeBytes)}
	}
	p.held.Cost, p.held.Instant = bigEndian(reply[:4]), int64(bigEndian(reply[4:]))
	return true, nil
}

// chargeBytes is the size of a charge as undo.lua takes it.
const chargeBytes = 4 + instantBytes
