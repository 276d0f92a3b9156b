package describe

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

func secrets() *tier.Secrets {
	return tier.NewSecrets([]string{"api_key", "authorization", "x-api-key"}, nil)
}

// values are the attributes of a request that a log has. An empty text of missing is absent.
type values map[accesslog.Attribute]string

// absent is a value that the log has, and the request had not.
const absent = "\x00"

// record makes a record. Attributes that are not among the values are unreported.
func record(d replay.Describer, v values) *accesslog.Record {
	r := &accesslog.Record{}
	for _, a := range d.Wants() {
		text, ok := v[a]
		switch {
		case !ok:
			r.Values = append(r.Values, accesslog.Value{})
		case text == absent:
			r.Values = append(r.Values, accesslog.Value{State: accesslog.Absent})
		default:
			r.Values = append(r.Values, accesslog.Value{State: accesslog.Present, Text: []byte(text)})
		}
	}
	return r
}

// write writes questions, one per line: domain, end, subject, and descriptors.
func write(qs []replay.Question) string {
	var b strings.Builder
	for _, q := range qs {
		fmt.Fprint(&b, q.Domain)
		if q.AtEnd {
			fmt.Fprint(&b, " end")
		}
		if q.Subject != "" {
			fmt.Fprint(&b, " subject=", q.Subject)
		}
		fmt.Fprint(&b, ":")
		for _, d := range q.Descriptors {
			fmt.Fprint(&b, " [")
			for i, e := range d.Entries {
				if i > 0 {
					fmt.Fprint(&b, ",")
				}
				fmt.Fprintf(&b, "%s=%s", e.Key, e.Value)
			}
			fmt.Fprint(&b, "]")
			if d.Cost != 1 {
				fmt.Fprintf(&b, "x%d", d.Cost)
			}
			if d.Refund {
				fmt.Fprint(&b, "-")
			}
			if d.Override != nil {
				fmt.Fprintf(&b, "@%d/%v", d.Override.Hits, d.Override.Window)
			}
		}
		fmt.Fprintln(&b)
	}
	return b.String()
}

func shipped(t testing.TB, name string) *Describer {
	t.Helper()
	c, err := envoyfile.Read(filepath.Join("../../../../envoy", name))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(c, Options{Secrets: secrets()})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestShippedFiles reads the files of envoy/ as they are.
func TestShippedFiles(t *testing.T) {
	files, err := filepath.Glob("../../../../envoy/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, f := range files {
		c, err := envoyfile.Read(f)
		if err != nil {
			t.Errorf("%s: %v", f, err)
			continue
		}
		_, err = New(c, Options{Secrets: secrets()})
		if oneHop := filepath.Base(f) == "one-hop.yaml"; oneHop != (err != nil) {
			t.Errorf("%s: got %v", f, err)
		} else if oneHop && !strings.Contains(err.Error(), "mapping file") {
			t.Errorf("%s: the error does not say what to do: %v", f, err)
		}
	}
}
