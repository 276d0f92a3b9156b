package describe

import (
	"github.com/slidegate/slidegate/internal/config/envoyfile"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// when are compiled conditions of a mapping file.
type when struct{}

func (d *Describer) when(in *envoyfile.RateLimit) *when { return nil }

func (w *when) holds(d *Describer, r *accesslog.Record) bool { return true }
