package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// answerWhileLoading serves the listeners while the memory store reads its snapshot, until the
// caller calls stop. The process is alive, so /healthcheck is 200, as on the port of
// dropin.metrics. It is not ready, so everything else is 503. Connections to the gRPC ports
// are closed at once, so that Envoy does not wait. plain is as in [probes].
func (ls listeners) answerWhileLoading(plain bool, log *zap.Logger) (stop func()) {
	const text = "loading the snapshot"
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthcheck", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		body := "OK"
		if !plain {
			body += "\nstore: memory, " + text + "\n"
		}
		_, _ = io.WriteString(w, body) // on an error the client has gone
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready: "+text, http.StatusServiceUnavailable)
	})
	server := newHTTP(mux, log)
	var serving sync.WaitGroup
	var lent []lentListener
	for _, l := range []net.Listener{ls.http, ls.admin, ls.metrics, ls.reference} {
		if l != nil {
			serving.Go(func() { _ = server.Serve(lentListener{l}) }) // it ends with stop
			lent = append(lent, lentListener{l})
		}
	}
	for _, l := range ls.grpc {
		serving.Go(func() { refuse(l) })
		lent = append(lent, lentListener{l})
	}
	return func() {
		_ = server.Close() // before Accept ends, or the server calls it again
		for _, l := range lent {
			_ = l.Close()
		}
		serving.Wait()
		for _, l := range lent {
			_ = l.until(time.Time{})
		}
	}
}

// refuse closes the connections of a listener until its Accept times out or fails.
func refuse(l net.Listener) {
	for {
		c, err := l.Accept()
		switch {
		case err == nil:
			_ = c.Close()
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return
		default:
			time.Sleep(10 * time.Millisecond) // such as too many open files
		}
	}
}

// A lentListener does not close its listener. Close only ends Accept.
type lentListener struct{ net.Listener }

func (l lentListener) Close() error { return l.until(time.Unix(1, 0)) }

// until sets the time at which Accept ends. The zero time means never.
func (l lentListener) until(t time.Time) error {
	d, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok {
		return fmt.Errorf("%T has no deadline", l.Listener)
	}
	return d.SetDeadline(t)
}
