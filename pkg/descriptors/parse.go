package descriptors

import (
	"fmt"
	"strings"
)

// Parse parses a descriptor in the form of a command line:
//
//	route=search,api_key=k1
//
// Every entry needs an equals sign. A value may be empty, but a key may not. A backslash
// makes a comma, an equals sign or a backslash after it an ordinary character. An equals
// sign in a value needs no backslash. Errors do not repeat the text, which may contain an
// API key.
func Parse(text string) (Descriptor, error) {
	var (
		d        Descriptor
		key, cur strings.Builder
		inValue  bool
	)
	end := func() error {
		if !inValue {
			return fmt.Errorf(`entry %d has no =: write key=value,key=value, and \, for a comma in a value`, len(d)+1)
		}
		if key.Len() == 0 {
			return fmt.Errorf("entry %d has no key: write key=value,key=value", len(d)+1)
		}
		d = append(d, Entry{key.String(), cur.String()})
		key.Reset()
		cur.Reset()
		inValue = false
		return nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\\' && i+1 < len(text) && strings.IndexByte(`,=\`, text[i+1]) >= 0:
			i++
			cur.WriteByte(text[i])
		case c == '=' && !inValue:
			key.WriteString(cur.String())
			cur.Reset()
			inValue = true
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			cur.WriteByte(c)
		}
	}
	if err := end(); err != nil {
		return nil, err
	}
	return d, nil
}

// Escape returns a key or a value as [Parse] reads it, with backslashes where it needs them.
func Escape(text string) string { return escaper.Replace(text) }

var escaper = strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`)
