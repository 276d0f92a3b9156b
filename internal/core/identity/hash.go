package identity

// A Hash is a 64-bit FNV-1a hash of texts. All processes compute the same one.
type Hash uint64

// The parameters of the 64-bit hash FNV-1a.
const (
	fnvOffset Hash = 0xcbf29ce484222325
	fnvPrime  Hash = 0x100000001b3
)

// NewHash returns the hash of a text.
func NewHash(text string) Hash { return fnvOffset.Add(text) }

// Add returns the hash of the texts of h, followed by another text.
func (h Hash) Add(text string) Hash {
	for i := range len(text) {
		h = (h ^ Hash(text[i])) * fnvPrime
	}
	return h
}

// Fraction turns the hash into a number from 0 to below 1. FNV gives short texts similar high bits,
// so Fraction mixes the bits first (the last step of MurmurHash3).
func (h Hash) Fraction() float64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return float64(h>>11) / (1 << 53)
}
