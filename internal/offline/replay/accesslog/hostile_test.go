package accesslog_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/test/random"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func packed(t *testing.T, kind, content string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if kind == "zst" {
		var err error
		if w, err = zstd.NewWriter(&b, zstd.WithEncoderConcurrency(1)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// jsonAt returns a line of a request at a second since 1970.
func jsonAt(seconds float64, path string) string {
	return fmt.Sprintf(`{"time":"%s","method":"GET","path":"%s"}`+"\n", time.Unix(0, int64(seconds*1e9)).UTC().Format("2006-01-02T15:04:05.000Z"), path)
}

var onlyPath = []accesslog.Attribute{accesslog.PathOnly}

// TestFiles reads files of every kind.
func TestFiles(t *testing.T) {
	a, b := jsonAt(1, "/a"), jsonAt(2, "/b")
	for name, content := range map[string]string{
		"plain": a + b, "no end": strings.TrimSuffix(a+b, "\n"), "CRLF": strings.ReplaceAll(a+b, "\n", "\r\n"), "BOM": "\xef\xbb\xbf" + a + b, "empty lines": "\n" + a + "\r\n\n" + b + "\n\n",
		"gzip": packed(t, "gz", a+b), "gzip members": packed(t, "gz", a) + packed(t, "gz", b), "zstd": packed(t, "zst", a+b), "zstd frames": packed(t, "zst", a) + packed(t, "zst", b),
		"skippable frame": "\x50\x2a\x4d\x18\x02\x00\x00\x00xx" + packed(t, "zst", a+b),
	} {
		path := write(t, "log", content)
		for _, o := range []accesslog.Options{{Paths: []string{path}}, {Paths: []string{"-"}, Stdin: strings.NewReader(content)}} {
			o.Want = onlyPath
			got, stats, err := all(t, o)
			if err != nil || !slices.Equal(got, []string{"1s /a", "2s /b"}) || stats.Lines != 2 || stats.Broken != 0 {
				t.Errorf("%s from %s: %q, %+v, %v", name, o.Paths, got, stats, err)
			}
		}
	}
	for name, content := range map[string]string{"empty": "", "only lines": "\n\r\n", "gzip": packed(t, "gz", ""), "zstd": packed(t, "zst", "")} {
		if got, _, err := all(t, accesslog.Options{Paths: []string{write(t, "log", content)}}); err != nil || len(got) > 0 {
			t.Errorf("empty %s: %q, %v", name, got, err)
		}
	}
}

// TestLongFirstLine recognises the format of a file that begins with a line of nearly the largest size.
func TestLongFirstLine(t *testing.T) {
	content := jsonAt(1, "/"+strings.Repeat("a", 900<<10)) + jsonAt(2, "/b")
	for _, o := range []accesslog.Options{{Paths: []string{write(t, "log", content)}}, {Paths: []string{"-"}, Stdin: strings.NewReader(content)}} {
		o.Want = onlyPath
		if got, stats, err := all(t, o); err != nil || len(got) != 2 || got[1] != "2s /b" || stats.Broken != 0 {
			t.Errorf("%s: %d requests, %+v, %v", o.Paths, len(got), stats, err)
		}
	}
	long := write(t, "log", jsonAt(1, "/"+strings.Repeat("a", 1<<20)))
	if _, _, err := all(t, accesslog.Options{Paths: []string{long}, Format: "envoy"}); err == nil || !strings.Contains(err.Error(), "the first one has more than 1048576 bytes") {
		t.Errorf("a line that is too long: %v", err)
	}
}

// TestEndMissing reads packed files without their ends: what was read until there is kept.
func TestEndMissing(t *testing.T) {
	var content strings.Builder
	for i := range 20000 {
		content.WriteString(jsonAt(float64(i), fmt.Sprintf("/%x", i*i*7919)))
	}
	for _, kind := range []string{"gz", "zst"} {
		whole := packed(t, kind, content.String())
		path := write(t, "cut."+kind, whole[:len(whole)/2])
		got, _, err := all(t, accesslog.Options{Paths: []string{path}, Want: onlyPath})
		if err == nil || !strings.Contains(err.Error(), path+": cannot be unpacked further after line ") || !strings.HasSuffix(err.Error(), ": its end is missing") {
			t.Errorf("%s: %v", kind, err)
		}
		if len(got) < 1000 || len(got) > 15000 {
			t.Errorf("%s: %d requests of about 10000", kind, len(got))
		}
	}
}

// TestRefused lists files that cannot be read, and what the error says.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	closed := write(t, "closed", "x")
	if err := os.Symlink("/proc/self/mem", filepath.Join(dir, "unreadable")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		o    accesslog.Options
		want string
	}{
		"no path":     {accesslog.Options{}, "no log is named"},
		"directory":   {accesslog.Options{Paths: []string{dir}}, "is a directory; name the files in it"},
		"missing":     {accesslog.Options{Paths: []string{dir + "/x"}}, "/x: cannot be opened: no such file"},
		"unreadable":  {accesslog.Options{Paths: []string{dir + "/unreadable"}}, "unreadable: cannot be read: "},
		"not a log":   {accesslog.Options{Paths: []string{write(t, "a", "sk-secret\nsk-secret\n")}}, "none of the first 2 lines can be read in a format that is known (json, caddy, envoy, nginx). Give the text of the log format (--format)"},
		"other":       {accesslog.Options{Paths: []string{write(t, "a", "sk-secret\n")}, Format: "envoy"}, "in the format envoy: the first one does not begin as the format does"},
		"format":      {accesslog.Options{Paths: []string{closed}, Format: "apache"}, `the format "apache" is not known: use json, envoy, nginx, caddy`},
		"no operator": {accesslog.Options{Paths: []string{closed}, Format: "100% x"}, "begins no operator"},
		"adjacent":    {accesslog.Options{Paths: []string{closed}, Format: "%REQ(A)%%REQ(B)%"}, "nothing between %REQ(A)% and %REQ(B)%"},
		"no time":     {accesslog.Options{Paths: []string{closed}, Format: "%REQ(A)% %PATH%"}, "does not say when a request came; it needs %START_TIME%"},
		"time format": {accesslog.Options{Paths: []string{closed}, Format: "%START_TIME(%H:%M)% %PATH%"}, "does not say the instant"},
		"mapping":     {accesslog.Options{Paths: []string{closed}, Fields: map[string]accesslog.Attribute{"p": "PATH"}}, "does not say when"},
		"operator":    {accesslog.Options{Paths: []string{closed}, Fields: map[string]accesslog.Attribute{"p": "path of it"}}, `the field "p": "path of it" is no operator`},
		"broken gzip": {accesslog.Options{Paths: []string{write(t, "a", "\x1f\x8bxxxxxxxxxxxx")}}, "cannot be unpacked"},
		"broken zstd": {accesslog.Options{Paths: []string{write(t, "a", "\x28\xb5\x2f\xfdxxxxxxxxx")}}, "cannot be unpacked"},
	} {
		_, _, err := all(t, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	_, _, err := all(t, accesslog.Options{Paths: []string{dir, dir + "/x"}})
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("not all errors at once: %v", err)
	}
}

// TestBroken counts broken lines, and keeps the first ten.
func TestBroken(t *testing.T) {
	good := jsonAt(1, "/a")
	lines := []string{
		"\x00\x00", `{"time":"1970-01-01T00:00:01Z","path":"/sk-secret"`, "{}", `{"time":"1969-12-31T00:00:00Z","path":"/a"}`, `{"time":"12026-01-01T00:00:00Z","path":"/a"}`,
		`{"time":1e999,"path":"/a"}`, `{"time":null,"path":"/a"}`, `{"path":"` + strings.Repeat("x", 1<<20) + `"}`, "sk-secret", `[1]`, `{"a":"\u12"}`, "x",
	}
	path := write(t, "log", good+strings.Join(lines, "\n")+"\n"+good)
	got, stats, err := all(t, accesslog.Options{Paths: []string{path}, Want: onlyPath})
	if err != nil || len(got) != 2 || stats.Lines != 14 || stats.Broken != 12 || len(stats.Faults) != 10 {
		t.Fatalf("%q, %+v, %v", got, stats, err)
	}
	for i, f := range stats.Faults {
		if f.File != path || f.Line != int64(i+2) || f.Reason == "" || strings.Contains(f.Reason, "secret") {
			t.Errorf("%+v", f)
		}
	}
	if r := stats.Faults[1].Reason; r != "is no valid JSON" {
		t.Errorf("reason: %s", r)
	}
	if r := stats.Faults[7].Reason; r != "has more than 1048576 bytes" {
		t.Errorf("reason: %s", r)
	}
}

// TestOrder gives lines in a random order within the bound, over several files of two instances. Those
// of one time come in the order of their lines.
func TestOrder(t *testing.T) {
	for seed := range uint64(random.Steps(t, 6, 30)) {
		r := rand.New(rand.NewPCG(seed, 4))
		parts := make([]strings.Builder, 1+r.IntN(5))
		type ended struct{ start, end float64 }
		var requests []ended
		at := 1000.0
		for range 3000 {
			at += float64(r.IntN(400)) / 1000
			requests = append(requests, ended{at, at + r.Float64()*59})
		}
		slices.SortFunc(requests, func(a, b ended) int {
			if a.end < b.end {
				return -1
			}
			return 1
		})
		for _, q := range requests {
			parts[r.IntN(len(parts))].WriteString(jsonAt(q.start, "/"))
		}
		var paths []string
		for i := range parts {
			paths = append(paths, write(t, fmt.Sprint(i), parts[i].String()))
		}
		reader, err := accesslog.Open(accesslog.Options{Paths: paths, Format: "json"})
		if err != nil {
			t.Fatal(err)
		}
		var last accesslog.Record
		n := 0
		for ; ; n++ {
			record, err := reader.Next()
			if err != nil {
				break
			}
			if record.At < last.At || record.At == last.At && record.File == last.File && record.Line < last.Line {
				t.Fatalf("seed %d: %s, line %d, after %s, line %d", seed, record.At, record.Line, last.At, last.Line)
			}
			last = *record
		}
		if s := reader.Stats(); n != 3000 || s.Late != 0 {
			t.Fatalf("seed %d: %d records, %+v", seed, n, s)
		}
		reader.Close()
	}
}

// TestLate gives lines that come too late with their own times, and does not believe one wrong time.
func TestLate(t *testing.T) {
	content := jsonAt(100, "/a") + jsonAt(4e9, "/wrong-clock") + jsonAt(101, "/b") + jsonAt(300, "/c") + strings.Repeat(jsonAt(300, "/"+strings.Repeat("x", 1000)), 300) + jsonAt(50, "/late") + jsonAt(301, "/d")
	got, stats, err := all(t, accesslog.Options{Paths: []string{"-"}, Stdin: iotestOneLine(content), Format: "json", Want: onlyPath})
	got = slices.DeleteFunc(got, func(record string) bool { return strings.HasSuffix(record, "x") })
	want := []string{"1m40s /a", "1m41s /b", "50s /late", "5m0s /c", "5m1s /d", "1111111h6m40s /wrong-clock"}
	if err != nil || !slices.Equal(got, want) || stats.Late != 1 {
		t.Errorf("%q, %+v, %v", got, stats, err)
	}
}

// iotestOneLine returns a reader that gives one line for each read.
func iotestOneLine(content string) io.Reader { return &oneLine{content} }

type oneLine struct{ rest string }

func (o *oneLine) Read(b []byte) (int, error) {
	if o.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, o.rest[:strings.IndexByte(o.rest, '\n')+1])
	o.rest = o.rest[n:]
	return n, nil
}

// repeated gives content again and again.
type repeated struct {
	content []byte
	left, i int
}

func (r *repeated) Read(b []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := copy(b, r.content[r.i:])
	r.i = (r.i + n) % len(r.content)
	r.left -= n
	return n, nil
}

// A watched reader looks how much memory is held each time that so many more bytes were read.
type watched struct {
	io.Reader
	every, read int
	most        uint64
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.Reader.Read(b)
	if w.read += n; w.read >= w.every {
		w.read = 0
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		w.most = max(w.most, m.HeapAlloc)
	}
	return n, err
}

// TestMemory reads hostile logs of 40 MB, of which little memory may be held.
func TestMemory(t *testing.T) {
	const size, looks = 40 << 20, 5
	first := jsonAt(1, "/a")
	x := strings.Repeat("x", 1<<20)
	member := packed(t, "gz", x)
	for name, in := range map[string]*watched{
		// In large pieces, because the race detector looks at the whole buffer for each one.
		"one time":  {Reader: &repeated{content: []byte(strings.Repeat(first, 1000)), left: size}, every: size / looks},
		"long line": {Reader: io.MultiReader(strings.NewReader(first), &repeated{content: []byte(x), left: size}), every: size / looks},
		"bomb":      {Reader: io.MultiReader(strings.NewReader(packed(t, "gz", first)), &repeated{content: []byte(member), left: size / len(x) * len(member)}), every: size / looks / len(x) * len(member)},
	} {
		r, err := accesslog.Open(accesslog.Options{Paths: []string{"-"}, Stdin: in, Format: "json", Want: onlyPath, MaxWaiting: 4 << 20})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for err == nil {
			_, err = r.Next()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
		r.Close()
		if in.most == 0 || in.most > 24<<20 {
			t.Errorf("%s: %d MB were held", name, in.most>>20)
		}
	}
}

// TestCloseEarly closes readers in the middle of files.
func TestCloseEarly(t *testing.T) {
	var content strings.Builder
	for i := range 10_000 {
		content.WriteString(jsonAt(float64(i), "/"))
	}
	for _, path := range []string{write(t, "a", content.String()), write(t, "a.gz", packed(t, "gz", content.String())), write(t, "a.zst", packed(t, "zst", content.String()))} {
		for n := range 3 {
			r, err := accesslog.Open(accesslog.Options{Paths: []string{path}})
			if err != nil {
				t.Fatal(err)
			}
			for range n * 1000 {
				if _, err := r.Next(); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestDone ends reads of pipes that wait: for a writer, for the first line, and for more of many lines.
func TestDone(t *testing.T) {
	for name, lines := range map[string]string{"no writer": "", "no line": "", "many lines": strings.Repeat(jsonAt(1, "/a"), 40_000)} {
		path := filepath.Join(t.TempDir(), "pipe")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		done, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			r, err := accesslog.Open(accesslog.Options{Paths: []string{path}, Done: done, Want: onlyPath, Reorder: -1})
			if err == nil {
				close(done)
			}
			n := 0
			for ; err == nil; n++ {
				_, err = r.Next()
			}
			if (n > 1) != (lines != "") || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("%s: %d records, %v", name, n-1, err)
			}
			if r != nil {
				r.Close()
			}
		}()
		if name == "no writer" {
			close(done)
			<-ended
		}
		in, err := os.OpenFile(path, os.O_WRONLY, 0) // waits until the pipe is opened for reading
		if err != nil {
			t.Fatal(err)
		}
		if name == "no line" {
			close(done)
		}
		_, _ = io.WriteString(in, lines) // the reader ends first
		<-ended
		in.Close()
	}
}
