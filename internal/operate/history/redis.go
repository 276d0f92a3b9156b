package history

import (
	"context"
	_ "embed"
	"errors"
	"math"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFields bounds the hash of a day: two fields for each hour of each rule. Above it, add.lua
	// counts other rules, with 48 fields more.
	maxFields = 2 * 24 * maxRules
	// maxText bounds a field: a name takes three bytes for one, with what is before it.
	maxText = 3*maxName + 8
	// timeout bounds a call, which adds to one day or reads it.
	timeout = time.Second
)

var (
	//go:embed add.lua
	addText string
	//go:embed read.lua
	readText  string
	addScript = redis.NewScript(addText)
	dayScript = redis.NewScript(readText)
)

// A Redis is where the instances of a service add up their counts.
type Redis struct {
	Client redis.UniversalClient
	// Prefix is that of the names of all keys.
	Prefix string
}

// keys returns the names of the two keys of a day. Both are in one slot of a cluster.
func (r *Redis) keys(day string) []string {
	at := r.Prefix + "history:{" + day + "}:"
	return []string{at + "rules", at + "subjects"}
}

// add adds the counts of a day.
func (r *Redis) add(ctx context.Context, at string, d *day) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	args := []any{(Days + 1) * 24 * 60 * 60, maxFields, maxSubjects, 0}
	d.eachField(func(field, other string, count uint64) { args = append(args, field, other, min(count, math.MaxInt64)) })
	args[3] = (len(args) - 4) / 3
	for who, denials := range d.Subjects {
		args = append(args, who, denials)
	}
	return addScript.Run(ctx, r.Client, r.keys(at), args...).Err()
}

// read returns a day.
func (r *Redis) read(ctx context.Context, at string) (*day, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	reply, err := dayScript.Run(ctx, r.Client, r.keys(at), maxFields+2*24, maxSubjects, maxText).Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != 2 {
		return nil, errors.New("the answer is malformed")
	}
	d := newDay()
	if err := pairs(reply[0], d.putField); err != nil {
		return nil, err
	}
	return d, pairs(reply[1], d.putSubject)
}

// pairs calls f with each name of a reply and the number behind it.
func pairs(reply any, f func(string, uint64) error) error {
	all, ok := reply.([]any)
	if !ok || len(all)%2 != 0 {
		return errors.New("the answer is malformed")
	}
	for i := 0; i < len(all); i += 2 {
		text, isText := all[i].(string)
		number, isNumber := all[i+1].(string)
		value, err := strconv.ParseFloat(number, 64)
		if !isText || !isNumber || err != nil || !(value >= 0 && value < 1<<63) {
			return errors.New("a count is malformed")
		}
		if err := f(text, uint64(value)); err != nil {
			return err
		}
	}
	return nil
}
