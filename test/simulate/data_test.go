package simulate

import (
	"errors"
	"maps"
	"strconv"
	"strings"
)

// data are the values of one Redis server. Times are by its clock.
type data struct {
	clock  int64 // microseconds since 1970
	values map[string]value
	gone   []string // keys that have expired
}

// A value is one key of a server: a string, or a sorted set.
type value struct {
	text    string
	set     map[string]int64 // not nil: a sorted set
	expires int64            // milliseconds since 1970; 0: never
}

var errType = errors.New("WRONGTYPE Operation against a key holding the wrong kind of value")

// get returns the value of a key that has not expired.
func (d *data) get(key string) (value, bool) {
	v, ok := d.values[key]
	if ok && v.expires > 0 && v.expires <= d.clock/1000 {
		delete(d.values, key)
		d.gone = append(d.gone, key)
		return value{}, false
	}
	return v, ok
}

// clone returns a copy, as a replica has it.
func (d *data) clone() map[string]value {
	c := maps.Clone(d.values)
	for k, v := range c {
		if v.set != nil {
			v.set = maps.Clone(v.set)
			c[k] = v
		}
	}
	return c
}

// do runs a command that a script may call. It returns nil, an int64, a string, a []string or an error.
func (d *data) do(args []string) any {
	switch strings.ToUpper(args[0]) {
	case "TIME":
		return []string{strconv.FormatInt(d.clock/1e6, 10), strconv.FormatInt(d.clock%1e6, 10)}
	case "GETRANGE":
		return d.getRange(args[1], number(args[2]), number(args[3]))
	case "STRLEN":
		v, _ := d.get(args[1])
		return int64(len(v.text))
	case "SET":
		return d.setText(args)
	case "SETRANGE":
		return d.setRange(args[1], int(number(args[2])), args[3])
	case "APPEND":
		v, _ := d.get(args[1])
		v.text += args[2]
		d.values[args[1]] = v
		return int64(len(v.text))
	case "PEXPIRE", "EXPIRE":
		v, ok := d.get(args[1])
		if !ok {
			return int64(0)
		}
		millis := number(args[2])
		if args[0][0] != 'P' && args[0][0] != 'p' {
			millis *= 1000
		}
		v.expires = d.clock/1000 + millis
		d.values[args[1]] = v
		return int64(1)
	case "UNLINK", "DEL":
		n := int64(0)
		for _, key := range args[1:] {
			if _, ok := d.get(key); ok {
				delete(d.values, key)
				n++
			}
		}
		return n
	}
	return d.doSet(args)
}

func (d *data) getRange(key string, from, to int64) any {
	v, _ := d.get(key)
	if v.set != nil {
		return errType
	}
	n := int64(len(v.text))
	if from < 0 {
		from = max(from+n, 0)
	}
	if to < 0 {
		to = max(to+n, 0)
	}
	if to = min(to, n-1); from > to || n == 0 {
		return ""
	}
	return v.text[from : to+1]
}

func (d *data) setText(args []string) any {
	v := value{text: args[2]}
	for i := 3; i < len(args); i++ {
		switch strings.ToUpper(args[i]) {
		case "PX":
			i++
			v.expires = d.clock/1000 + number(args[i])
		case "KEEPTTL":
			before, _ := d.get(args[1])
			v.expires = before.expires
		}
	}
	d.values[args[1]] = v
	return "OK"
}

func (d *data) setRange(key string, at int, text string) any {
	v, _ := d.get(key)
	b := []byte(v.text)
	if need := at + len(text) - len(b); need > 0 {
		b = append(b, make([]byte, need)...)
	}
	copy(b[at:], text)
	v.text = string(b)
	d.values[key] = v
	return int64(len(b))
}

// doSet runs the commands of sorted sets that instances.lua calls.
func (d *data) doSet(args []string) any {
	v, ok := d.get(args[1])
	if !ok {
		v.set = make(map[string]int64)
	}
	switch strings.ToUpper(args[0]) {
	case "ZCARD":
		return int64(len(v.set))
	case "ZADD":
		v.set[args[3]] = number(args[2])
	case "ZREM":
		delete(v.set, args[2])
	case "ZREMRANGEBYSCORE":
		low, high := bound(args[2]), bound(args[3])
		maps.DeleteFunc(v.set, func(_ string, at int64) bool { return at >= low && at <= high })
	default:
		return errors.New("ERR unknown command '" + args[0] + "'")
	}
	d.values[args[1]] = v
	if len(v.set) == 0 {
		delete(d.values, args[1])
	}
	return int64(1)
}

// bound reads a bound of a range of scores.
func bound(text string) int64 {
	switch text {
	case "-inf":
		return -1 << 62
	case "+inf":
		return 1 << 62
	}
	return number(text)
}

func number(text string) int64 {
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return int64(f)
}
