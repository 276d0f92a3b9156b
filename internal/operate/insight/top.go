package insight

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/apache/datasketches-go/frequencies"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text/words"
)

// A TopQuery says which list to make.
type TopQuery struct {
	// By is subject, rule, route or address. Empty: subject.
	By string
	// Order is denied, near or shadow: the number of denials, of requests near a limit, or of
	// denials under limits that are only observed. Empty: denied.
	Order string
	// Minutes is 1, 5 or 60, and any other number 60.
	Minutes int
	// Limit is the length of the list. Zero: 20.
	Limit int
}

// Top is who is denied most, or is nearest to its limits, in one process or in several.
type Top struct {
	By      string     `json:"by"`
	Order   string     `json:"order"`
	Minutes int        `json:"minutes"`
	Entries []TopEntry `json:"entries"`
	// Error is how much larger each count may be than the true one, also because the process
	// was too busy to count some events. No count is smaller than the true one, and a name that
	// is missing has at most Error, unless the list is full: then it has at most the last count.
	// Above what is recorded, counts are estimates from a sample too; Sampled is then true. Exact is true
	// without an error and a sample.
	Error     uint64    `json:"error"`
	Sampled   bool      `json:"sampled,omitempty"`
	Exact     bool      `json:"exact"`
	Instance  string    `json:"instance"`
	Instances Instances `json:"instances,omitempty"`
}

// Accuracy says in a sentence how exact the counts are.
func (t Top) Accuracy() string {
	switch {
	case t.Sampled && t.Error > 0:
		return "The counts are estimates from a sample, and may be up to " + words.Count(t.Error) + " too large."
	case t.Sampled:
		return "The counts are estimates from a sample."
	case t.Error > 0:
		return "Each count may be up to " + words.Count(t.Error) + " too large."
	}
	return "The counts are exact."
}

// A TopEntry is one line of a [Top].
type TopEntry struct {
	// Name is a rule, a route, a masked address, or the id of a subject. If a list of subjects
	// has an unknown API key with its own log, Name is "key" and the first 12 digits of its
	// digest, and Digest is all of it. If the subject is not known otherwise, Name is the masked
	// address, and so is Address.
	Name    string `json:"name"`
	Digest  string `json:"digest,omitempty"`
	Address string `json:"address,omitempty"`
	Count   uint64 `json:"count"`
	// Peak is the largest used fraction of a limit, from 0 to 1, if the order is near.
	Peak float64 `json:"peak,omitempty"`
}

// shortKey returns the name of an unknown API key in lists.
func shortKey(digest string) string { return "key " + tier.ShortDigest(digest) }

// UsualTop is the length of a list whose TopQuery has no Limit.
const UsualTop = 20

// The choices of a [TopQuery]: of By, Order and Minutes. The first of a list is the usual one.
var (
	TopBys     = [...]string{"subject", "rule", "route", "address"}
	TopOrders  = [...]string{"denied", "near", "shadow"}
	TopMinutes = [...]int{1, 5, 60}
)

// spans are the times that tops are of. Each has a bucket more than fits, because the newest one
// is not whole. So a list is of the last minutes and up to one bucket more.
var spans = [...]struct {
	minutes, buckets int
	bucket           time.Duration
}{
	{TopMinutes[0], 7, 10 * time.Second},
	{TopMinutes[1], 6, time.Minute},
	{TopMinutes[2], 13, 5 * time.Minute},
}

// Top returns who is denied most or is nearest to its limits. An unknown By or Order has no
// entries.
func (i *Insight) Top(q TopQuery) Top {
	q.By, q.Order, q.Limit = cmp.Or(q.By, TopBys[0]), cmp.Or(q.Order, TopOrders[0]), cmp.Or(max(q.Limit, 0), UsualTop)
	at := len(spans) - 1
	if k := slices.Index(TopMinutes[:], q.Minutes); k >= 0 {
		at = k
	}
	t := Top{By: q.By, Order: q.Order, Minutes: spans[at].minutes, Entries: []TopEntry{}, Instance: i.opts.Instance}
	by, order := slices.Index(TopBys[:], q.By), slices.Index(TopOrders[:], q.Order)
	if by < 0 || order < 0 {
		return t
	}
	i.recorder.drain()
	i.recorder.mu.Lock()
	newest := i.opts.Now().UnixNano() / int64(spans[at].bucket)
	counts := i.recorder.tops.merge(at, kind{order, by}, newest-int64(spans[at].buckets), newest, &t)
	i.recorder.mu.Unlock()
	t.Exact = t.Error == 0 && !t.Sampled
	for name, e := range counts {
		e.Name = name
		if t.By == TopBys[0] {
			e.Identify(name)
		}
		e.Count += t.Error // the true count is not larger than this
		t.Entries = append(t.Entries, e)
	}
	slices.SortFunc(t.Entries, func(a, b TopEntry) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(b.Peak, a.Peak), cmp.Compare(a.Name, b.Name))
	})
	t.Entries = t.Entries[:min(len(t.Entries), q.Limit)]
	return t
}

// DeniedIn returns how often the most denied subjects were denied in a minute, by the names that
// [TopEntry.Identify] takes. No count is larger than the true one. Only the last five minutes are known.
func (i *Insight) DeniedIn(minute time.Time) map[string]uint64 {
	number := minute.UnixNano() / int64(spans[1].bucket)
	i.recorder.drain()
	i.recorder.mu.Lock()
	counts := i.recorder.tops.merge(1, kind{}, number-1, number, new(Top))
	i.recorder.mu.Unlock()
	all := make(map[string]uint64, len(counts))
	for name, e := range counts {
		all[name] = e.Count
	}
	return all
}

// Identify reads a name in a ranking into e, as a subject, a digest or an address. It returns false and
// changes nothing if the name is malformed.
func (e *TopEntry) Identify(name string) bool {
	if len(name) < 2 {
		return false
	}
	switch who := name[1:]; name[:1] {
	case asSubject:
		e.Name = who
	case asDigest:
		e.Name, e.Digest = shortKey(who), who
	case asAddress:
		e.Name, e.Address = who, who
	default:
		return false
	}
	return true
}

// A kind is one list: an index in TopOrders and one in TopBys.
type kind struct{ order, by int }

// tops counts names in sketches, one for each kind of list and each part of the time. Its memory
// has a bound whatever names clients invent. The recorder locks it.
type tops struct {
	spans  [len(spans)][]bucket
	hasher *nameHasher // nil: nothing was counted
}

// A bucket is one part of the time.
type bucket struct {
	number   int64 // of its length since 1970
	sampled  [len(TopOrders)]bool
	missed   [len(TopOrders)]uint64               // events that no sketch has
	sketches [len(TopOrders)][len(TopBys)]*sketch // nil: nothing was counted
}

// orderOf returns the index in TopOrders under which an event counts.
func orderOf(near, shadow bool) int {
	switch {
	case near:
		return 1
	case shadow:
		return 2
	}
	return 0
}

// event names in the order of TopBys; an empty name is not counted.
func (e event) names() [len(TopBys)]string {
	who := e.Subject
	switch {
	case who != "":
		who = asSubject + who
	case e.Digest != "":
		who = asDigest + e.Digest
	case e.Address != "":
		who = asAddress + e.Address
	}
	return [...]string{who, e.Rule, e.Route, e.Address}
}

// What names of subjects begin with, so that no subject can be taken for a key or an address.
const (
	asSubject = "s"
	asDigest  = "k"
	asAddress = "a"
)

func (t *tops) add(e event) {
	order := orderOf(e.near, e.Shadow)
	fraction := 0.0
	if e.near && e.Limit > 0 {
		fraction = float64(e.Used) / float64(e.Limit)
	}
	names := e.names()
	for k := range spans {
		b := t.bucket(k, e.At)
		if b == nil {
			continue
		}
		b.sampled[order] = b.sampled[order] || e.Stands > 1
		for by, name := range names {
			if name == "" {
				continue
			}
			s := &b.sketches[order][by]
			if *s == nil {
				*s = newSketch(t.hasher)
			}
			(*s).count(name, int64(min(e.Stands, 1<<40)), fraction)
		}
	}
}

// miss counts events whose names are not known. If sampled is true, their number is an estimate.
func (t *tops) miss(order int, n uint64, sampled bool, at time.Time) {
	for k := range spans {
		if b := t.bucket(k, at); b != nil {
			b.missed[order] += n
			b.sampled[order] = b.sampled[order] || sampled
		}
	}
}

// bucket returns the part of a span at a time. It is nil if the part is over: the clock went back,
// or an event is old.
func (t *tops) bucket(span int, at time.Time) *bucket {
	if t.hasher == nil {
		t.hasher = &nameHasher{maphash.MakeSeed()}
		for k := range spans {
			t.spans[k] = make([]bucket, spans[k].buckets)
		}
	}
	number := at.UnixNano() / int64(spans[span].bucket)
	b := &t.spans[span][number%int64(spans[span].buckets)]
	if b.number > number {
		return nil
	}
	if b.number < number {
		*b = bucket{number: number}
	}
	return b
}

// merge returns the smallest counts of one kind, by name, in the buckets of a span with a number above
// after, up to newest. It sets Error and Sampled of a list.
func (t *tops) merge(span int, k kind, after, newest int64, top *Top) map[string]TopEntry {
	counts := make(map[string]TopEntry)
	for i := range t.spans[span] {
		b := &t.spans[span][i]
		if b.number <= after || b.number > newest {
			continue
		}
		top.Error += b.missed[k.order]
		top.Sampled = top.Sampled || b.sampled[k.order]
		s := b.sketches[k.order][k.by]
		if s == nil {
			continue
		}
		top.Error += uint64(s.items.GetMaximumError())
		for _, row := range s.rows() {
			e := counts[row.GetItem()]
			e.Count += uint64(row.GetLowerBound())
			e.Peak = max(e.Peak, float64(s.peaks[row.GetItem()]))
			counts[row.GetItem()] = e
		}
	}
	return counts
}

// A sketch counts the most frequent of many names. A count may be too large by what [Top] says
// as its error.
type sketch struct {
	items *frequencies.ItemsSketch[string]
	// peaks has the largest used fraction of each name that items has, and of few others. Nil: none.
	peaks map[string]float32
}

const (
	// sketchBits is the binary logarithm of a sketch's cells, of which it uses three quarters.
	sketchBits  = 8
	sketchNames = 3 << sketchBits / 4
	// minSketchBits is that of an empty sketch.
	minSketchBits = 3
)

func newSketch(hasher *nameHasher) *sketch {
	// The sizes are constants, so there is no error.
	items, _ := frequencies.NewFrequencyItemsSketch(sketchBits, minSketchBits, hasher, nil)
	return &sketch{items: items}
}

func (s *sketch) count(name string, stands int64, fraction float64) {
	if known, _ := s.items.GetLowerBound(name); known == 0 {
		name = strings.Clone(name) // a name can be a part of a longer text
	}
	// The only errors are of counts below zero, and of a purge that removes nothing.
	_ = s.items.UpdateMany(name, stands)
	if fraction <= 0 {
		return
	}
	if s.peaks == nil {
		s.peaks = make(map[string]float32)
	}
	if peak, known := s.peaks[name]; known && float32(fraction) <= peak {
		return
	}
	s.peaks[name] = float32(fraction)
	if len(s.peaks) <= 2*sketchNames {
		return
	}
	for name := range s.peaks {
		if known, _ := s.items.GetLowerBound(name); known == 0 {
			delete(s.peaks, name)
		}
	}
}

func (s *sketch) rows() []*frequencies.RowItem[string] {
	rows, err := s.items.GetFrequentItems(frequencies.ErrorTypeEnum.NoFalseNegatives)
	if err != nil {
		return nil
	}
	return rows
}

// nameHasher hashes names with a seed that clients do not know, so that they cannot make names
// that fraction a cell.
type nameHasher struct{ seed maphash.Seed }

// Hash implements the hasher of a sketch.
func (h *nameHasher) Hash(name string) uint64 { return maphash.String(h.seed, name) }
