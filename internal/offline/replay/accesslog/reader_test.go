package accesslog_test

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/test/tree"
)

// write returns the path of a file with this content.
func write(t *testing.T, name, content string) string {
	t.Helper()
	return tree.Write(t, filepath.Join(t.TempDir(), name), content)
}

// show returns what a record says, on one line.
func show(r *accesslog.Record) string {
	parts := []string{r.At.String()}
	for _, v := range r.Values {
		switch v.State {
		case accesslog.Unreported:
			parts = append(parts, "?")
		case accesslog.Absent:
			parts = append(parts, "-")
		default:
			parts = append(parts, string(v.Text))
		}
	}
	return strings.Join(parts, " ")
}

// all reads all records.
func all(t *testing.T, o accesslog.Options) ([]string, accesslog.Stats, error) {
	t.Helper()
	r, err := accesslog.Open(o)
	if err != nil {
		return nil, accesslog.Stats{}, err
	}
	defer r.Close()
	var got []string
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return got, r.Stats(), nil
		}
		if err != nil {
			return got, r.Stats(), err
		}
		got = append(got, show(record))
	}
}

func TestShippedJSON(t *testing.T) {
	path := write(t, "a.log", `{"time":"1970-01-01T00:00:02.500Z","method":"GET","path":"/b","subject":"acme","key_digest":null,"duration_ms":3}
{"time":"1970-01-01T00:00:01.000Z","method":"GET","path":"/a","subject":"acme","key_digest":"0a"}
`)
	got, stats, err := all(t, accesslog.Options{Paths: []string{path}, Want: []accesslog.Attribute{accesslog.PathOnly, accesslog.Subject, accesslog.KeyDigest, accesslog.Path}})
	if err != nil {
		t.Fatal(err)
	}
	want := "1s /a acme 0a ?\n2.5s /b acme - ?"
	if s := strings.Join(got, "\n"); s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
	if stats.Lines != 2 || stats.Broken != 0 || stats.Late != 0 {
		t.Errorf("stats %+v", stats)
	}
}

// TestOperators reads a text whose format has an operator with percent signs and parentheses in its
// argument, and percent signs that are text.
func TestOperators(t *testing.T) {
	o := accesslog.Options{
		Paths: []string{write(t, "a.log", "%100% 1970-01-01T00:00:01Z 1 /a%\n")}, Want: onlyPath,
		Format: "%%100%% %START_TIME% %CEL((size(request.path) + 1) % 2)% %PATH(NQ)%%%\\n",
	}
	if got, _, err := all(t, o); err != nil || len(got) != 1 || got[0] != "1s /a" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestWritten: of the formats of Envoy's configuration that one counts by which the file says most,
// and a known format if it reads more lines.
func TestWritten(t *testing.T) {
	written := []accesslog.Written{
		{Name: "untimed", Fields: map[string]accesslog.Attribute{"a": accesslog.PathOnly}},
		{Name: "broken", Text: "%START_TIME"},
		{Name: "poor", Fields: map[string]accesslog.Attribute{"t": "START_TIME", "x": accesslog.PathOnly}},
		{Name: "rich", Fields: map[string]accesslog.Attribute{"t": "START_TIME", "http.url": accesslog.Path}},
		{Name: "text", Text: "%START_TIME%|%PATH(NQ)%\n"},
	}
	for _, line := range []string{`{"t":"1970-01-01T00:00:01Z","http":{"url":"/a?b"}}`, "1970-01-01T00:00:01Z|/a", jsonAt(1, "/a")} {
		o := accesslog.Options{Paths: []string{write(t, "a.log", line+"\n")}, Written: written, Want: onlyPath}
		if got, _, err := all(t, o); err != nil || len(got) != 1 || got[0] != "1s /a" {
			t.Errorf("%s: got %q, %v", line, got, err)
		}
	}
	if _, _, err := all(t, accesslog.Options{Paths: []string{write(t, "a.log", "x\n")}, Written: written}); err == nil || !strings.Contains(err.Error(), "(poor, rich, text, json, ") {
		t.Errorf("got %v", err)
	}
}
