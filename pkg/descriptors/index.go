package descriptors

import (
	"math"
	"slices"
)

// An index finds the patterns of a key by the text at one of their ends.
type index struct {
	ends [2]lists // by prefix and by suffix; each pattern is in one of them
	next []int32  // by pattern: the next one of its list; math.MaxInt32: none
}

// lists are patterns by their text at one end.
type lists struct {
	lengths []int // of the texts
	byText  map[string]list
}

// A list says which patterns have one text, in their order.
type list struct{ first, last, count int32 }

// probeSteps is what it costs to look for a list, in steps of [Tree.MatchWithin]. So many patterns
// are tried in less time.
const probeSteps = 8

// steps returns what a search costs without the patterns that it finds.
func (x *index) steps() int { return probeSteps * (len(x.ends[0].lengths) + len(x.ends[1].lengths)) }

// add adds the next pattern to the shorter of its two lists.
func (x *index) add(p *Pattern) {
	to, text := &x.ends[0], p.prefix
	if s := &x.ends[1]; p.suffix != "" && (text == "" || s.byText[p.suffix].count < to.byText[text].count) {
		to, text = s, p.suffix
	}
	number := int32(len(x.next))
	x.next = append(x.next, math.MaxInt32)
	l, is := to.byText[text]
	if is {
		x.next[l.last] = number
	} else {
		l.first = number
	}
	l.last, l.count = number, l.count+1
	if to.byText == nil {
		to.byText = make(map[string]list)
	}
	to.byText[text] = l
	if !slices.Contains(to.lengths, len(text)) {
		to.lengths = append(to.lengths, len(text))
	}
}

// reindex adds the patterns to the index that are not in it, if they are more than a few.
func (k *keyNode[R]) reindex() {
	if len(k.patterns) <= fewPatterns {
		return
	}
	if k.index == nil {
		k.index = new(index)
	}
	for i := len(k.index.next); i < len(k.patterns); i++ {
		k.index.add(&k.patterns[i].Pattern)
	}
}

// search returns the number of the first pattern that a value fits, or that of patterns. It takes
// its cost from steps, as find does.
func (k *keyNode[R]) search(value string, steps *int) int {
	best := int32(len(k.patterns))
	*steps -= k.index.steps()
	for end := range k.index.ends {
		lists := &k.index.ends[end]
		for _, n := range lists.lengths {
			if n > len(value) {
				continue
			}
			text := value[:n]
			if end == 1 {
				text = value[len(value)-n:]
			}
			l, is := lists.byText[text]
			for i := l.first; is && i < best && *steps >= 0; i = k.index.next[i] {
				if k.patterns[i].try(value, steps) {
					best = i
				}
			}
		}
	}
	return int(best)
}
