package tables

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/text/safetext"
	"github.com/slidegate/slidegate/internal/text/terminal"
)

// Customer writes the record of a customer.
func Customer(w io.Writer, c *admin.Customer, paint terminal.Colours) {
	fmt.Fprintf(w, "\ncustomer %s: %s\n", paint.Bold(safetext.Text(c.Subject)), tierText(c))
	for _, rule := range slices.Sorted(maps.Keys(c.Overrides)) {
		fmt.Fprintf(w, "  override of %s: %s\n", safetext.Text(rule), c.Overrides[rule])
	}
	for _, key := range slices.Sorted(maps.Keys(c.Limits)) {
		fmt.Fprintf(w, "  %s for Envoy: %s\n", key, c.Limits[key])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		fmt.Fprintf(w, "  label %s: %s\n", safetext.Text(name), safetext.Text(c.Labels[name]))
	}
}

// tierText says which tier a customer has.
func tierText(c *admin.Customer) string {
	text := "the default tier"
	if c.Tier != "" {
		text = "tier " + safetext.Text(c.Tier)
	}
	if c.Disabled {
		text += ", disabled"
	}
	return text
}
