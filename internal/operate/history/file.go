package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
)

// maxFile bounds the file: a day within the bounds has 350 kB at most.
const maxFile = 16 << 20

// A savedDay is a day in the file, with the names of package history in Redis.
type savedDay struct {
	Rules    map[string]uint64 `json:"rules"`
	Subjects map[string]uint64 `json:"subjects"`
}

// load returns the days of a file. They are empty if there is no file.
func load(file string) (days, error) {
	text, err := files.Read(file, maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return make(days), nil
	}
	if err != nil {
		return nil, err
	}
	var read map[string]savedDay
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, errors.New("it is not a history that rls has written")
	}
	all := make(days)
	for at, saved := range read {
		if _, err := time.Parse(time.DateOnly, at); err != nil {
			return nil, errors.New("a day is malformed")
		}
		d := newDay()
		for text, count := range saved.Rules {
			err = errors.Join(err, d.putField(text, count))
		}
		for who, denials := range saved.Subjects {
			err = errors.Join(err, d.putSubject(who, denials))
		}
		if all[at] = d; err != nil || len(d.rules) > maxRules+1 || len(d.subjects) > maxSubjects {
			return nil, fmt.Errorf("the day %s is malformed", at)
		}
	}
	return all, nil
}

func save(file string, all days) error {
	saved := make(map[string]savedDay)
	for at, d := range all {
		rules := make(map[string]uint64)
		d.eachField(func(field, _ string, count uint64) { rules[field] = count })
		saved[at] = savedDay{rules, d.subjects}
	}
	return files.Replace(file, func(w io.Writer) error { return json.NewEncoder(w).Encode(saved) })
}
