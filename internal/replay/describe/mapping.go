package describe

import (
	"github.com/slidegate/slidegate/internal/config/envoyfile"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// when are compiled conditions of a mapping file: a virtual host with one route.
type when struct {
	host   *host
	noPath *untold
	any    bool // the path does not matter
}

func (d *Describer) when(in *envoyfile.Match) *when {
	w := &when{host: newHost(1), any: in.Kind == envoyfile.AnyPath}
	w.host.routes[0] = d.match(in)
	w.host.compiled()
	w.noPath = d.missing(accesslog.PathOnly, in.Place, "Descriptors with a condition on the path were left out.", "path")
	return w
}

func (w *when) holds(d *Describer, r *accesslog.Record) bool {
	one := &w.host.routes[0]
	if !w.any {
		v := &r.Values[d.common.pathOnly]
		if v.State == accesslog.Untold {
			d.count(w.noPath)
		}
		if v.State != accesslog.Present || len(w.host.candidates(withoutQuery(v.Text))) == 0 {
			return false
		}
	}
	return one.plain || one.conditions(d, r)
}
