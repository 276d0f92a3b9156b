// Package limits has the limits that a tier carries for Envoy: one, and several by name ([Limit],
// [Set]). [Read] reads the JSON of customer sources, and the checks [Unit], [Requests] and [Name] are
// those of the tiers file too.
package limits

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier/strictjson"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// A Limit is a limit that a tier carries. An authorization hands it to Envoy, which sends it with a
// descriptor in place of the limit of a rule.
type Limit struct {
	// Name is that of one of several limits. Empty: the tier's limit without a name.
	Name string
	// Requests is at least 1, in each Unit: second, minute, hour, day, month or year.
	Requests uint32
	Unit     string
}

// Key returns the key of the limit in dynamic metadata: limit, or limit_NAME.
func (l Limit) Key() string {
	if l.Name == "" {
		return "limit"
	}
	return "limit_" + l.Name
}

// Window returns the window that a request with the limit has.
func (l Limit) Window() time.Duration {
	switch l.Unit {
	case "second":
		return time.Second
	case "minute":
		return time.Minute
	}
	unit, _ := calendar.ParseUnit(l.Unit)
	return unit.Nominal()
}

// String returns the limit as text, such as 100 per minute.
func (l Limit) String() string { return fmt.Sprintf("%d per %s", l.Requests, l.Unit) }

// A Set is all limits that a tier carries. It is immutable and safe for concurrent use. Nil: it carries
// none.
type Set struct {
	list    []Limit // sorted by name
	once    sync.Once
	encoded []byte
}

// Max is the maximum number of limits that a tier carries.
const Max = 16

// New returns the limits of a list. It returns nil for an empty list.
func New(list []Limit) (*Set, error) {
	if len(list) == 0 {
		return nil, nil //nolint:nilnil // there are no limits
	}
	if len(list) > Max {
		return nil, fmt.Errorf("%d limits, at most %d are allowed", len(list), Max)
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b Limit) int { return cmp.Compare(a.Name, b.Name) })
	return &Set{list: list}, nil
}

// All returns the limits, sorted by their names. The caller must not change them.
func (l *Set) All() []Limit {
	if l == nil {
		return nil
	}
	return l.list
}

// Equal reports whether others are the same limits.
func (l *Set) Equal(others *Set) bool { return slices.Equal(l.All(), others.All()) }

// Encoded returns what encode makes of the limits. It calls encode the first time only, so all callers
// give the same one.
func (l *Set) Encoded(encode func([]Limit) []byte) []byte {
	if l == nil {
		return nil
	}
	l.once.Do(func() { l.encoded = encode(l.list) })
	return l.encoded
}

// Unit reads the unit of a [Limit], in any case. Its error does not repeat the text.
func Unit(text string) (string, error) {
	units := []string{"second", "minute", "hour", "day", "month", "year"}
	if at := slices.Index(units, strings.ToLower(text)); at >= 0 {
		return units[at], nil
	}
	return "", errors.New("not a unit that Envoy can send: write second, minute, hour, day, month or year")
}

// Requests checks the requests of a [Limit].
func Requests(n uint64) (uint32, error) {
	switch {
	case n == 0:
		return 0, errors.New("0 would deny all requests: disable the customers of the tier instead")
	case n > math.MaxUint32:
		return 0, fmt.Errorf("above %d, the largest limit that Envoy can send", uint32(math.MaxUint32))
	}
	return uint32(n), nil
}

// Name says what is wrong with the name of a [Limit], or returns nil.
func Name(name string) error {
	if !strictjson.IsName(name) {
		return fmt.Errorf("a name is not 1 to %d letters, digits and _.-", strictjson.MaxName)
	}
	return nil
}

// read reads limits as sources keep them:
//
//	{"limit": {"unit": "minute", "requests_per_unit": 100}, "limits": {"tokens": {…}}}
func read(data []byte) (*Set, error) {
	var list []Limit
	add := func(name string, value json.RawMessage) error {
		l, err := readLimit(value)
		l.Name = name
		list = append(list, l)
		return err
	}
	err := strictjson.Object(data, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "limit":
			err = add("", value)
		case "limits":
			err = strictjson.Object(value, func(name string, value json.RawMessage) error {
				if err := Name(name); err != nil {
					return err
				}
				if err := add(name, value); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				return nil
			})
		default:
			return errors.New("a member is neither limit nor limits")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return New(list)
}

func readLimit(data []byte) (l Limit, err error) {
	err = strictjson.Object(data, func(name string, value json.RawMessage) (err error) {
		switch name {
		case "unit":
			var text string
			if text, err = strictjson.Text(value); err == nil {
				l.Unit, err = Unit(text)
			}
		case "requests_per_unit":
			n, notWhole := strconv.ParseUint(string(value), 10, 64)
			if l.Requests, err = Requests(n); notWhole != nil {
				err = fmt.Errorf("it is no whole number from 1 to %d", uint32(math.MaxUint32))
			}
		default:
			return errors.New("a member is neither unit nor requests_per_unit")
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	if err == nil && (l.Unit == "" || l.Requests == 0) {
		err = errors.New("it needs unit and requests_per_unit")
	}
	return l, err
}

// interned are the limits of the tiers of a source by their text, because all customers of a tier have
// the same.
var interned = struct {
	sync.Mutex
	byText map[string]*Set
}{byText: make(map[string]*Set)}

// Bounds of interned.
const (
	maxInterned     = 1000
	maxInternedText = 1 << 10
)

// Read is read. It returns the same limits for the same text.
func Read(data []byte) (*Set, error) {
	if len(data) > maxInternedText {
		return read(data)
	}
	interned.Lock()
	defer interned.Unlock()
	if l, ok := interned.byText[string(data)]; ok {
		return l, nil
	}
	l, err := read(data)
	if err == nil {
		if len(interned.byText) >= maxInterned {
			clear(interned.byText)
		}
		interned.byText[string(data)] = l
	}
	return l, err
}
