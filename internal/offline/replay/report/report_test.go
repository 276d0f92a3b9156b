package report

import (
	"crypto/sha256"
	"encoding/base64"
	"html"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/offline/replay/report/reporttest"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
	"github.com/slidegate/slidegate/test/configtest"
)

// TestText compares the text of each report at several widths. A terminal obeys nothing in it.
func TestText(t *testing.T) {
	for _, state := range reporttest.States {
		for _, width := range []int{0, 40, 80, 160} {
			var b strings.Builder
			if err := WriteText(&b, reporttest.New(state), width, false); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				line = strings.TrimSuffix(line, "\n")
				if safetext.Text(line) != line {
					t.Errorf("%s: a line has a character that a terminal obeys: %q", state, line)
				}
				if n := terminal.Columns(line); width >= 80 && n > width {
					t.Errorf("%s: a line takes %d columns of %d: %s", state, n, width, line)
				}
			}
			if width == 80 && state != "empty" || width == 0 && state == "usual" {
				configtest.Golden(t, "testdata/"+state+"-"+strconv.Itoa(width)+".txt", b.String())
			}
		}
	}
}

// TestColours has no other difference than colours.
func TestColours(t *testing.T) {
	var plain, coloured strings.Builder
	for b, colours := range map[*strings.Builder]terminal.Colours{&plain: false, &coloured: true} {
		if err := WriteText(b, reporttest.New("usual"), 80, colours); err != nil {
			t.Fatal(err)
		}
	}
	text := coloured.String()
	for _, code := range []string{"\x1b[0m", "\x1b[1m", "\x1b[1;31m", "\x1b[32m", "\x1b[33m"} {
		if !strings.Contains(text, code) {
			t.Errorf("the text has no %q", code)
		}
		text = strings.ReplaceAll(text, code, "")
	}
	if diff := cmp.Diff(plain.String(), text); diff != "" {
		t.Errorf("(-without colours +with)\n%s", diff)
	}
}

// TestHTML checks that each page is one file without a script, in which text is no markup.
func TestHTML(t *testing.T) {
	style := regexp.MustCompile(`(?s)<style>(.*?)</style>`)
	for _, state := range reporttest.States {
		var b strings.Builder
		if err := WriteHTML(&b, reporttest.New(state)); err != nil {
			t.Fatal(err)
		}
		page := b.String()
		sum := sha256.Sum256([]byte(style.FindStringSubmatch(page)[1]))
		want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; base-uri 'none'; form-action 'none'"
		if !strings.Contains(html.UnescapeString(page), `<meta http-equiv="Content-Security-Policy" content="`+want+`">`) {
			t.Errorf("%s: the page has not the policy %s", state, want)
		}
		for _, line := range strings.Split(page, "\n") {
			if safetext.Text(line) != line {
				t.Errorf("%s: a character cannot be seen: %q", state, line)
			}
		}
		markup := style.ReplaceAllString(page, "")
		for _, foreign := range []string{"<script", "<img", "<link", "<a ", " href=", " style=", "url(", "ZgotmplZ", "NaN", "Inf", "<no value>"} {
			if at := strings.Index(markup, foreign); at >= 0 {
				t.Errorf("%s: the page has %s: %s", state, foreign, markup[max(at-100, 0):min(at+100, len(markup))])
			}
		}
		if state == "hostile" && !strings.Contains(page, "&lt;script&gt;pwned=1") {
			t.Error("the hostile text is not in the page")
		}
		for _, number := range []string{"8,120,441", "25,411", "acme", "rules.yaml:18", "access-2.log.gz", "%REQ(x-tenant)%", "15,204"} {
			if state == "usual" && !strings.Contains(page, number) {
				t.Errorf("the page has no %s", number)
			}
		}
	}
}

// TestSchema compares the schema in docs with that of the types, and each report with it.
func TestSchema(t *testing.T) {
	const file = "../../../../docs/replay.schema.json"
	s := configtest.Answers{Refs: "#/definitions/", Named: configtest.Object{}}
	root := s.Struct(reflect.TypeFor[replay.Report]())
	root["$schema"], root["title"] = configtest.Draft, "The report of rls replay --json"
	root["definitions"] = s.Named
	configtest.CompareSchema(t, file, root)
	for _, state := range reporttest.States {
		var b strings.Builder
		if err := WriteJSON(&b, reporttest.New(state)); err != nil {
			t.Fatal(err)
		}
		if text := b.String(); terminal.JSON([]byte(text)) != text {
			t.Errorf("%s: a terminal obeys something in the JSON", state)
		}
		configtest.Valid(t, file, configtest.Write(t, "report.json", b.String()), true)
	}
}
