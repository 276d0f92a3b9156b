package console

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/slidegate/slidegate/test/consoletest"
)

var (
	screenshots = flag.String("screenshots", "", "the `directory` for the pictures of the pages; empty: none")
	shotState   = flag.String("state", "usual", "the made-up `state` in the pictures")
	shotWidth   = flag.Int64("width", wide, "the width of the pictures in `pixels`")
)

const (
	// maxTall bounds the height of a picture in pixels, and maxPicture its size in bytes.
	maxTall    = 1440
	maxPicture = 200_000
)

// lastEdge is an expression with the height of the page, up to the end of the last part that fits.
const lastEdge = `Math.ceil(Math.max(600, ...[...document.querySelectorAll("footer, .cards, .limit, .rule, tbody tr")]
	.map((e) => e.getBoundingClientRect().bottom + scrollY).filter((y) => y <= %d)))`

// TestScreenshots writes the pictures of docs/operate.md. The service and its clock are made up, so
// that the pictures change only with the pages.
func TestScreenshots(t *testing.T) {
	if *screenshots == "" {
		return // make console-screenshots names the directory
	}
	noon := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	_, base := serve(t, *shotState, func() time.Time { return noon })
	b := open(t, base)
	logIn(b, consoletest.ActToken)
	for name, path := range map[string]string{"overview": "/", "subject": "/subject?id=acme"} {
		b.look("light", *shotWidth)
		b.load(path)
		// "Find" has the focus after a click; no control has it in a picture.
		eval[chromedp.Void](b, "document.activeElement.blur(); document.querySelectorAll('details').forEach((d) => { d.open = true; })")
		b.do(chromedp.EmulateViewport(*shotWidth, eval[int64](b, fmt.Sprintf(lastEdge, maxTall))))
		b.picture(filepath.Join(*screenshots, "console-"+name+"-light.png"))
	}
}

// picture writes a picture of the screen to a file.
func (b *tab) picture(file string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	shot, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	if err != nil {
		b.t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		b.t.Fatal(err)
	}
	var small bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, img); err != nil {
		b.t.Fatal(err)
	}
	if small.Len() > len(shot) {
		small = *bytes.NewBuffer(shot)
	}
	if small.Len() > maxPicture {
		b.t.Errorf("%s has %d bytes, want at most %d", file, small.Len(), maxPicture)
	}
	if err := os.WriteFile(file, small.Bytes(), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// logIn logs in with a token.
func logIn(b *tab, token string) {
	b.t.Helper()
	b.page("/login")
	b.fill("#token", token)
	b.send(".login form button")
}
