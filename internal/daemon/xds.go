package daemon

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/rules"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/config/xds"
	"github.com/slidegate/slidegate/internal/operate/metrics"
)

// remote are rules from an xDS server. A nil remote stands for rules from files.
type remote struct {
	settings settings.Settings
	log      *zap.Logger
	client   *xds.Client

	stopped context.Context //nolint:containedctx // of the client
	stop    context.CancelFunc
	done    chan struct{} // closed when the client has stopped

	missing *config.Generation      // until the server has sent rules
	early   chan *config.Generation // the first generation, unless DropIn.WithoutRules
	got     bool                    // early got its generation; only the goroutine of the client uses got
	serving chan struct{}           // closed when generations is set

	generations *generations
}

// The options of package xds of these names. Tests set them.
var xdsBackoff, xdsMaxBackoff time.Duration

// askServer begins to ask the xDS server for rules. close ends that. missing is the
// generation until there are any.
func askServer(ctx context.Context, s settings.Settings, missing *config.Generation, log *zap.Logger) (*remote, error) {
	v := &remote{
		settings: s, log: log, missing: missing,
		done: make(chan struct{}), early: make(chan *config.Generation, 1), serving: make(chan struct{}),
	}
	var err error
	if v.client, err = xds.New(xds.Options{
		Settings: s.Rules.XDS, NodeMetadata: s.DropIn.NodeMetadata, Headers: s.DropIn.XDSHeaders,
		Backoff: xdsBackoff, MaxBackoff: xdsMaxBackoff, Loader: v, Log: log,
	}); err != nil {
		return nil, err
	}
	// The rules follow the server until the drain is over.
	v.stopped, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(v.done)
		_ = v.client.Run(v.stopped) // it returns nil
	}()
	return v, nil
}

func (v *remote) close() error {
	v.stop()
	<-v.done
	return nil
}

// stillWaiting is how often the log says that there are no first rules yet. Tests replace it.
var stillWaiting = 10 * time.Second

// first returns the first generation: that of the server's first rules, or
// one without rules with DropIn.WithoutRules. It returns nil if ctx ends.
func (v *remote) first(ctx context.Context) *config.Generation {
	x := &v.settings.Rules.XDS
	if v.settings.DropIn.WithoutRules {
		return v.missing
	}
	v.log.Info("waiting for the first rules of the xDS server: the ports stay closed until then",
		zap.String("address", string(x.Address)), zap.String("node", x.NodeID))
	long := time.NewTicker(stillWaiting)
	defer long.Stop()
	for {
		select {
		case g := <-v.early:
			return g
		case <-ctx.Done():
			return nil
		case <-long.C:
			v.log.Warn("still waiting for the first rules of the xDS server: the ports stay closed; check the server and rules.xds.node_id",
				zap.String("rules", v.text()), zap.String("node", x.NodeID))
		}
	}
}

func (v *remote) serve(gs *generations) {
	if v != nil {
		v.generations = gs
		close(v.serving)
	}
}

var errStops = errors.New("rls stops")

// Load implements xds.Loader.
func (v *remote) Load(version string, domains []rules.Domain) error {
	sent := &config.Sent{Version: version, Domains: domains}
	if !v.settings.DropIn.WithoutRules && !v.got {
		g, err := config.LoadSent(v.settings, sent, v.missing)
		if err != nil {
			v.refuseEarly(err)
			return err
		}
		v.got = true
		v.early <- g
		return nil
	}
	if !v.waitServing() {
		return errStops
	}
	return v.generations.load(sent)
}

// Refused implements xds.Loader.
func (v *remote) Refused(_ string, err error) {
	if !v.settings.DropIn.WithoutRules && !v.got {
		v.refuseEarly(err)
	} else if v.waitServing() {
		v.generations.refuse(err)
	}
}

func (v *remote) refuseEarly(err error) {
	v.log.Error("the xDS server sent rules that cannot be used; rls waits for others; correct the rules there", zap.String("problems", err.Error()))
}

// waitServing waits until the process serves. It reports false if it stops before.
func (v *remote) waitServing() bool {
	select {
	case <-v.serving:
		return true
	case <-v.stopped.Done():
		return false
	}
}

func (v *remote) register(registry prometheus.Registerer) {
	if v != nil {
		metrics.XDS(registry, func() bool { return v.client.State().Connected })
	}
}

// text describes where the rules come from, for pages.
func (v *remote) text() string {
	s := v.client.State()
	text := "none yet"
	if s.Loaded {
		text = "version " + strict.Quote(s.Version)
	}
	if s.Connected {
		return fmt.Sprintf("%s, connected to %s", text, v.settings.Rules.XDS.Address)
	}
	if s.Reason == "" {
		s.Reason = "not tried yet"
	}
	reason := strconv.Quote(s.Reason) // the client has bounded it
	return fmt.Sprintf("%s, not connected to %s: %s", text, v.settings.Rules.XDS.Address, reason[1:len(reason)-1])
}
