package strict

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/text/safetext"
)

// A Problem is one mistake in a file or in the environment.
type Problem struct {
	// File is the file as it was named, or "environment".
	File string `json:"file,omitempty"`
	// Line counts from 1. Zero: the problem is with the file as a whole.
	Line int `json:"line,omitempty"`
	// Column counts characters from 1. Zero: unknown.
	Column int `json:"column,omitempty"`
	// Path is the position inside the file, such as
	// descriptors[route=search].rate_limit.unit, or the name of the variable.
	// Empty: the problem is with the file as a whole.
	Path string `json:"path,omitempty"`
	// Message says what is wrong and, where there is one, what to write instead.
	Message string `json:"message"`
}

// String returns file:line:column: path: message, without what is unknown.
func (p Problem) String() string {
	text := safetext.Text(p.Message)
	if p.Path != "" {
		text = safetext.Text(p.Path) + ": " + text
	}
	at := safetext.Text(p.File)
	if at == "" {
		return text
	}
	for _, n := range []int{p.Line, p.Column} {
		if n == 0 {
			break
		}
		at += ":" + strconv.Itoa(n)
	}
	return at + ": " + text
}

// Problems is the error for bad configuration: all that is wrong, in the order
// of the files. It is never empty as an error.
type Problems []Problem

// Error returns one line for each problem.
func (ps Problems) Error() string { return Lines(ps) }

// Lines returns one line for each problem.
func Lines[P fmt.Stringer](problems []P) string {
	lines := make([]string, len(problems))
	for i, p := range problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// ProblemsOf returns the problems in errs. An error without a position becomes a problem that has only a
// message.
func ProblemsOf(errs ...error) (all Problems) {
	for _, err := range errs {
		if ps := Problems(nil); errors.As(err, &ps) {
			all = append(all, ps...)
		} else if err != nil {
			all = append(all, Problem{Message: err.Error()})
		}
	}
	return all
}

// Err returns the problems as an error, or nil if there are none.
func (ps Problems) Err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// MaxProblems bounds the problems of one report. If every line of a million-line file is
// wrong, there is one cause, and a million messages do not help.
const MaxProblems = 1000

// Report collects problems.
type Report struct {
	problems Problems
	dropped  int
	skipped  int            // problems that follow from others, and are not reported
	rank     map[string]int // the files, in the order in which they are read
}

// File fixes the order of a file's problems among those of other files.
func (r *Report) File(name string) {
	if r.rank == nil {
		r.rank = make(map[string]int)
	}
	if _, ok := r.rank[name]; !ok {
		r.rank[name] = len(r.rank)
	}
}

// Add adds a problem, or counts it if there are [MaxProblems] already.
func (r *Report) Add(p Problem) {
	r.File(p.File)
	if len(r.problems) >= MaxProblems {
		r.dropped++
		return
	}
	r.problems = append(r.problems, p)
}

// Addf adds a problem with a message in the format of fmt.
func (r *Report) Addf(file string, line int, path, format string, args ...any) {
	r.Add(Problem{File: file, Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// Count returns how many problems there are so far.
func (r *Report) Count() int { return len(r.problems) + r.dropped + r.skipped }

// Has reports whether is is true for a problem.
func (r *Report) Has(is func(Problem) bool) bool { return slices.ContainsFunc(r.problems, is) }

// Sorted returns the problems in the order of the files, or nil.
func (r *Report) Sorted() Problems {
	if len(r.problems) == 0 {
		return nil
	}
	ps := slices.Clone(r.problems)
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(r.rank[a.File], r.rank[b.File]), cmp.Compare(a.Line, b.Line))
	})
	if r.dropped > 0 {
		ps = append(ps, Problem{Message: fmt.Sprintf("and %d more problems", r.dropped)})
	}
	return ps
}

// Err returns the problems as an error, or nil.
func (r *Report) Err() error { return r.Sorted().Err() }

// Hidden stands for a secret wherever it is printed.
const Hidden = "***"

const maxQuote = 64

// Quote quotes text for a message, so that no line break or control character
// of it gets into a log, and shortens it.
func Quote(text string) string { return strconv.Quote(shorten(text)) }

// Quoteless is Quote without the quotes, for text inside a message.
func Quoteless(text string) string {
	q := Quote(text)
	return q[1 : len(q)-1]
}

func shorten(text string) string {
	if len(text) <= maxQuote {
		return text
	}
	cut := maxQuote
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// Label is text as part of a path: as it is where that is unambiguous.
func Label(text string) string {
	if text == "" || len(text) > maxQuote {
		return Quote(text)
	}
	for _, c := range text {
		if c == utf8.RuneError || !unicode.IsGraphic(c) || unicode.IsSpace(c) || strings.ContainsRune(`"[]`, c) {
			return Quote(text)
		}
	}
	return text
}

const maxNames = 10

// SomeNames lists names for a message.
func SomeNames(names []string) string {
	list := make([]string, 0, maxNames)
	for _, n := range names {
		if len(list) == maxNames {
			return strings.Join(list, ", ") + ", ..."
		}
		list = append(list, Label(n))
	}
	return strings.Join(list, ", ")
}

// NotOneOf returns the message for a text that is not one of the given names.
func NotOneOf(got string, names []string) string {
	return fmt.Sprintf("%s is not one of %s%s", Quote(got), strings.Join(names, ", "), DidYouMean(got, names))
}

// DidYouMean returns `, did you mean "x"?` for the candidate nearest to name, or
// nothing if none is near.
func DidYouMean(name string, candidates []string) string {
	if best := nearest(name, candidates); best != "" {
		return fmt.Sprintf(", did you mean %q?", best)
	}
	return ""
}

func nearest(name string, candidates []string) string {
	if len(name) > maxQuote {
		return ""
	}
	plain := strings.NewReplacer("-", "_", " ", "_").Replace(strings.ToLower(name))
	best, bestDistance := "", 1+max(1, len(plain)/3)
	longer := make([]string, 0, 2) // that begin with the name
	for _, c := range candidates {
		lower := strings.ToLower(c)
		// At least one character must be the same.
		if d := distance(plain, lower); d < bestDistance && d < len(plain) {
			best, bestDistance = c, d
		}
		if len(plain) >= minPrefix && strings.HasPrefix(lower, plain) && len(longer) < cap(longer) {
			longer = append(longer, c)
		}
	}
	if best == "" && len(longer) == 1 {
		return longer[0]
	}
	return best
}

// Suggest returns at most most of the candidates that a typed name may mean, each text once: those that
// begin with it, then those that are spelled alike, the nearest first.
func Suggest(name string, candidates iter.Seq[string], most int) []string {
	if name == "" || len(name) > maxQuote {
		return nil
	}
	type guess struct {
		edits int // 0: it begins with the name
		text  string
	}
	byEdits := func(a, b guess) int { return cmp.Or(cmp.Compare(a.edits, b.edits), cmp.Compare(a.text, b.text)) }
	var best []guess
	plain := strings.ToLower(name)
	allowed := len(plain) / 3
	for c := range candidates {
		g, lower := guess{text: c}, strings.ToLower(c)
		if !strings.HasPrefix(lower, plain) {
			if g.edits = 1 + allowed; max(len(lower)-len(plain), len(plain)-len(lower)) <= allowed {
				g.edits = max(1, distance(plain, lower))
			}
			if g.edits > allowed {
				continue
			}
		}
		if at, listed := slices.BinarySearchFunc(best, g, byEdits); !listed && at < most {
			best = slices.Insert(best, at, g)
			best = best[:min(len(best), most)]
		}
	}
	texts := make([]string, len(best))
	for i := range best {
		texts[i] = best[i].text
	}
	return texts
}

// minPrefix is how many bytes of a name are enough to suggest the whole name.
const minPrefix = 4

// distance is the number of edits from a to b, where swapping two neighbours
// counts as one edit ("optimal string alignment").
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := last[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
