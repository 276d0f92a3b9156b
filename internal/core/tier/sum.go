package tier

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
)

// A Sum stands for a key in the memory of a process: the digest of an API key, or that of an id.
type Sum [sha256.Size]byte

// idSalt separates the sums of ids from the digests of API keys. It is a secret of the
// process, so that no client can make a key whose digest is the sum of an id.
var idSalt = func() (salt [sha256.Size]byte) {
	_, _ = rand.Read(salt[:]) // never fails
	return salt
}()

// SumOf returns the sum of a key. It reports false if the key is invalid.
func SumOf(k Key) (s Sum, ok bool) {
	if k.Digest == "" {
		if ValidID(k.ID) != nil {
			return s, false
		}
		var text [len(idSalt) + MaxText]byte
		return sha256.Sum256(append(append(text[:0], idSalt[:]...), k.ID...)), true
	}
	if len(k.Digest) != DigestLen {
		return s, false
	}
	var text [DigestLen]byte
	copy(text[:], k.Digest)
	_, err := hex.Decode(s[:], text[:])
	return s, err == nil
}
