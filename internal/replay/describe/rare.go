package describe

import (
	"regexp/syntax"
	"unicode"
)

// rare is a set of bytes that few paths have. A text with none of them does not match a regular
// expression. Nil: the expression is to be tried on every text.
type rare *[256]bool

// rareOf returns the set for a regular expression. Most paths are new in many logs, and an
// expression that looks for odd characters at any place is slow.
func rareOf(text string) rare {
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil
	}
	set, ok := needed(re.Simplify())
	if !ok || weight(set) >= heavy {
		return nil
	}
	return set
}

// heavy is the weight of a byte that many paths have.
const heavy = 1000

func weight(set *[256]bool) (sum int) {
	for c, in := range set {
		switch {
		case !in:
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '/', c == '-', c == '_':
			sum += heavy
		default:
			sum++
		}
	}
	return sum
}

// needed returns a set of bytes of which every match has at least one.
func needed(re *syntax.Regexp) (set *[256]bool, ok bool) {
	switch re.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return needed(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return needed(re.Sub[0])
		}
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			if one, found := needed(sub); found && (!ok || weight(one) < weight(set)) {
				set, ok = one, true
			}
		}
	case syntax.OpAlternate:
		set = new([256]bool)
		for _, sub := range re.Sub {
			one, found := needed(sub)
			if !found {
				return nil, false
			}
			for c, in := range one {
				set[c] = set[c] || in
			}
		}
		return set, true
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if one, found := bytesOf([]rune{r, r}, re.Flags&syntax.FoldCase != 0); found && (!ok || weight(one) < weight(set)) {
				set, ok = one, true
			}
		}
	case syntax.OpCharClass:
		return bytesOf(re.Rune, false)
	}
	return set, ok
}

// bytesOf returns the bytes of ranges of characters. It reports false if one of them is not ASCII.
func bytesOf(ranges []rune, fold bool) (set *[256]bool, ok bool) {
	set = new([256]bool)
	for i := 0; i+1 < len(ranges); i += 2 {
		if ranges[i+1] >= unicode.MaxASCII {
			return nil, false
		}
		for r := ranges[i]; r <= ranges[i+1]; r++ {
			set[r] = true
			if !fold {
				continue
			}
			for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
				if f >= unicode.MaxASCII {
					return nil, false
				}
				set[f] = true
			}
		}
	}
	return set, len(ranges) > 0
}

// mayMatch reports false if the regular expression cannot match a path.
func (p *pathMatcher) mayMatch(path []byte) bool {
	if p.rare == nil {
		return true
	}
	for i := range len(path) {
		if p.rare[path[i]] {
			return true
		}
	}
	return false
}
