package admin

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"text/tabwriter"
)

// A page is the content of one path, in all forms.
type page struct {
	Title string
	Body  string          // names the template of the HTML form
	Code  int             // the status; 0: 200
	Data  any             // for Body, and for the JSON form
	text  func(io.Writer) // writes the text form
}

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string

	templates = template.Must(template.New("").Parse(strings.Replace(pageHTML, "{{css}}", pageCSS, 1)))
)

// contentSecurity allows a page its own style and nothing else: no script, no request, no
// frame of another site.
var contentSecurity = func() string {
	sum := sha256.Sum256([]byte(pageCSS))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
}()

// The forms of a page, as ?format= names them.
const (
	formText = "text"
	formJSON = "json"
	formHTML = "html"
)

// formOf returns the form that the client asks for with ?format= or else with Accept. The
// default is text, so that probes and scripts always get the form that they compare.
func formOf(r *http.Request) string {
	switch form := r.URL.Query().Get("format"); form {
	case formText, formJSON, formHTML:
		return form
	}
	form, best := formText, 0.0
	for _, item := range strings.Split(strings.Join(r.Header.Values("Accept"), ","), ",") {
		kind, params, err := mime.ParseMediaType(item)
		if err != nil || !strings.Contains(kind, "/") {
			// Accept is not a list of media types. Java's own client sends such a header.
			return formText
		}
		quality := 1.0
		if q, ok := params["q"]; ok {
			if quality, err = strconv.ParseFloat(q, 64); err != nil {
				return formText
			}
		}
		if quality <= best {
			continue
		}
		switch kind {
		case "text/html":
			form, best = formHTML, quality
		case "application/json":
			form, best = formJSON, quality
		case "text/plain":
			form, best = formText, quality
		}
	}
	return form
}

// write answers with a page. It ignores errors, because they mean that the client has gone.
func write(w http.ResponseWriter, r *http.Request, p page) {
	h := w.Header()
	h.Set("Vary", "Accept")
	h.Set("X-Content-Type-Options", "nosniff")
	form := formOf(r)
	switch form {
	case formJSON:
		h.Set("Content-Type", "application/json")
	case formHTML:
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", contentSecurity)
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
	default:
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
	if p.Code != 0 {
		w.WriteHeader(p.Code)
	}
	switch form {
	case formJSON:
		_ = json.NewEncoder(w).Encode(p.Data)
	case formHTML:
		_ = templates.ExecuteTemplate(w, p.Body, p)
	default:
		p.text(w)
	}
}

// An Entry is one line of an index.
type Entry struct {
	Path string `json:"path"`
	Text string `json:"text"`
	// Link is set if a browser can open the path.
	Link bool `json:"-"`
}

// Index returns the page that lists the paths of a port. note is its last sentence.
func Index(title string, entries []Entry, note string) http.HandlerFunc {
	type index struct {
		Entries []Entry `json:"paths"`
		Note    string  `json:"note"`
	}
	p := page{Title: title, Body: "index", Data: index{entries, note}, text: func(w io.Writer) {
		fmt.Fprintf(w, "%s\n\n", title)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, e := range entries {
			fmt.Fprintf(t, "%s\t%s\n", e.Path, e.Text)
		}
		_ = t.Flush()
		fmt.Fprintf(w, "\n%s\n", note)
	}}
	return func(w http.ResponseWriter, r *http.Request) { write(w, r, p) }
}

// A State is one line of the health page.
type State struct {
	Of   string // the subject of the line, for example store
	Text string
}

// WriteHealth answers with the health page. If unhealthy is empty, the first line of its text
// is OK, because probes compare it. Otherwise the answer is 500, and unhealthy says why. In
// JSON, states of the same subject become lines of one text.
func WriteHealth(w http.ResponseWriter, r *http.Request, unhealthy string, states []State) {
	status, code := "OK", http.StatusOK
	if unhealthy != "" {
		status, code = "unhealthy: "+unhealthy, http.StatusInternalServerError
	}
	data := map[string]string{"status": status}
	for _, s := range states {
		if before, again := data[s.Of]; again {
			s.Text = before + "\n" + s.Text
		}
		data[s.Of] = s.Text
	}
	write(w, r, page{Title: "Health", Body: "health", Code: code, Data: data, text: func(w io.Writer) {
		fmt.Fprintln(w, status)
		for _, s := range states {
			fmt.Fprintf(w, "%s: %s\n", s.Of, s.Text)
		}
	}})
}
