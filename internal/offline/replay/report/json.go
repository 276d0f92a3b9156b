package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/slidegate/slidegate/internal/offline/replay"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// WriteJSON writes a report as JSON, as docs/replay.schema.json describes it. A terminal obeys
// nothing in it.
func WriteJSON(w io.Writer, r *replay.Report) error {
	full := *r
	full.Misleading = misleading(r)
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(&full); err != nil {
		return fmt.Errorf("writing the report as JSON: %w", err)
	}
	_, err := io.WriteString(w, terminal.JSON(b.Bytes()))
	return err
}
