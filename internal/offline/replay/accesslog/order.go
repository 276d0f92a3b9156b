package accesslog

// An order holds records until all that started before them have come, and gives them back by the
// time of their start, and those of one time in the order in which they came.
type order struct {
	heap  []waiting
	bytes int64 // of the records
	seq   uint64
}

// A waiting record waits for earlier ones.
type waiting struct {
	at     int64 // in nanoseconds since 1970
	seq    uint64
	record []byte
}

// waitingCost is the memory of a record without its bytes.
const waitingCost = 64

func (a *waiting) before(b *waiting) bool { return a.at < b.at || a.at == b.at && a.seq < b.seq }

// add adds a record, which the order keeps.
func (o *order) add(r waiting) {
	o.seq++
	r.seq = o.seq
	o.bytes += waitingCost + int64(cap(r.record))
	h := append(o.heap, r)
	o.heap = h
	for i := len(h) - 1; i > 0; {
		parent := (i - 1) / 2
		if !h[i].before(&h[parent]) {
			return
		}
		h[i], h[parent] = h[parent], h[i]
		i = parent
	}
}

// take returns the record that started first, if that was not after until or more than most bytes
// wait.
func (o *order) take(until, most int64) (r waiting, ok bool) {
	h := o.heap
	if len(h) == 0 || h[0].at > until && o.bytes <= most {
		return r, false
	}
	r = h[0]
	o.bytes -= waitingCost + int64(cap(r.record))
	n := len(h) - 1
	last := h[n]
	h[n] = waiting{}
	o.heap = h[:n]
	for i := 0; n > 0; {
		child := 2*i + 1
		if child+1 < n && h[child+1].before(&h[child]) {
			child++
		}
		if child >= n || !h[child].before(&last) {
			h[i] = last
			break
		}
		h[i] = h[child]
		i = child
	}
	return r, true
}
