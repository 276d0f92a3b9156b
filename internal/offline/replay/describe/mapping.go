package describe

import (
	"bytes"

	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
	"github.com/slidegate/slidegate/internal/offline/replay/envoyfile"
)

// when are compiled conditions of a mapping file.
type when struct {
	route route
	path  lookup
	any   bool // the path does not matter
}

func (d *Describer) when(in *envoyfile.Match) *when {
	return &when{
		route: d.match(in), any: in.Kind == envoyfile.AnyPath,
		path: d.look(accesslog.PathOnly, in.Location, "Descriptors with a condition on the path were left out."),
	}
}

func (w *when) matchesRecord(d *Describer, r *accesslog.Record) bool {
	one := &w.route
	if !w.any {
		v := w.path.of(d, r)
		if v.State != accesslog.Present {
			return false
		}
		path := withoutQuery(v.Text)
		if one.path.kind != envoyfile.Unknown && !one.path.takes(path, bytes.ToLower(path)) {
			return false
		}
	}
	return one.plain || one.conditions(d, r)
}
