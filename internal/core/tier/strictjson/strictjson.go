// Package strictjson reads JSON objects of customer sources and refuses what is ambiguous: a name
// that is used twice, text that is not UTF-8, or anything after the object ([Object], [Text]). It has the form of names ([IsName]).
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Object reads a JSON object and calls member for each of its members, until
// that returns an error. Unlike encoding/json it refuses a name that is used twice, a
// text that is not UTF-8, and anything after the object. Its own errors repeat nothing
// of data.
func Object(data []byte, member func(name string, value json.RawMessage) error) error {
	if !utf8.Valid(data) {
		return errors.New("it is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	if token, err := d.Token(); err != nil {
		return notJSON(d)
	} else if token != json.Delim('{') {
		return errors.New("it is no JSON object")
	}
	seen := make(map[string]bool)
	for n := 1; d.More(); n++ {
		token, err := d.Token()
		name, ok := token.(string)
		if err != nil || !ok {
			return notJSON(d)
		}
		if seen[name] {
			return fmt.Errorf("member %d has the name of an earlier one", n)
		}
		seen[name] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return notJSON(d)
		}
		if err := member(name, value); err != nil {
			return err
		}
	}
	if _, err := d.Token(); err != nil { // the closing brace
		return notJSON(d)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something stands behind the JSON object")
	}
	return nil
}

// MaxName is the maximum length of a name in bytes.
const MaxName = 64

// IsName reports whether a text is a name: 1 to [MaxName] letters, digits and _.-
func IsName(text string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
	return text != "" && len(text) <= MaxName && strings.Trim(text, letters) == ""
}

// notJSON returns an error without the library's message, which quotes the text.
func notJSON(d *json.Decoder) error {
	return fmt.Errorf("it is not JSON from byte %d on", d.InputOffset()+1)
}

// Text reads a JSON string. Its error repeats nothing of value.
func Text(value json.RawMessage) (text string, err error) {
	if len(value) == 0 || value[0] != '"' || json.Unmarshal(value, &text) != nil {
		return "", errors.New("it is no text")
	}
	return text, nil
}
