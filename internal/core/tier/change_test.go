package tier

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestReadChange(t *testing.T) {
	digest := strings.Repeat("0123456789abcdef", 4)
	for payload, want := range map[string]Change{
		digest:                          {Digest: digest},
		" " + digest + "\n":             {Digest: digest},
		strings.ToUpper(digest):         {Digest: digest},
		`{"digest":"` + digest + `"}`:   {Digest: digest},
		`{"subject":"acme"}`:            {ID: "acme"},
		`{"at":[1],"subject":"a \"b"}`:  {ID: `a "b`},
		` {"all":true, "why":"import"}`: {},
	} {
		if got, err := ReadChange([]byte(payload)); got != want || err != nil {
			t.Errorf("ReadChange(%s) = %+v, %v; want %+v", payload, got, err, want)
		}
	}
	for _, payload := range []string{
		"", " ", "all", "null", "{", "{}", "[]", `"` + digest + `"`, digest[1:], digest + "0", digest[1:] + "g", "acme",
		`{"all":false}`, `{"all":1}`, `{"all":true,"subject":"acme"}`, `{"subject":""}`, `{"subject":null}`, `{"subject":"é"}`,
		`{"subject":"a","subject":"b"}`, `{"digest":"` + digest[1:] + `"}`, `{"digest":"` + digest + `","subject":"acme"}`,
		`{"subject":"acme"} {}`, `{"id":"acme"}`, "{\"subject\":\"\xff\"}",
	} {
		if got, err := ReadChange([]byte(payload)); err == nil || got != (Change{}) {
			t.Errorf("ReadChange(%s) = %+v, %v; want an error", payload, got, err)
		}
	}
}

func FuzzReadChange(f *testing.F) {
	for _, payload := range []string{"", "{}", strings.Repeat("aB", 32), `{"all":true}`, `{"subject":"acme","x":{"y":[]}}`} {
		f.Add([]byte(payload))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		c, err := ReadChange(payload)
		if err != nil {
			if c != (Change{}) {
				t.Errorf("%v, and yet %+v", err, c)
			}
			return
		}
		if c.Digest != "" && (c.ID != "" || len(c.Digest) != DigestLen || c.Digest != strings.ToLower(c.Digest)) ||
			c.ID != "" && ValidID(c.ID) != nil {
			t.Errorf("ReadChange(%q) = %+v", payload, c)
		}
		// encoding/json reads the same from the text.
		var other map[string]any
		if json.Unmarshal(payload, &other) == nil && other["subject"] != nil && other["subject"] != c.ID {
			t.Errorf("ReadChange(%q) = %+v, encoding/json reads %+v", payload, c, other)
		}
	})
}
