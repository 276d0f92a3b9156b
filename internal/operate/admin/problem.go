package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/slidegate/slidegate/internal/operate/insight"
)

// A Problem is the body of an error (RFC 9457), as application/problem+json.
type Problem struct {
	Type   string `json:"type"` // about:blank
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what is wrong and what to do.
	Detail string `json:"detail"`
}

// A refusal is an error with the status of its answer.
type refusal struct {
	status int
	detail string
}

func (r *refusal) Error() string { return r.detail }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// bad refuses a request with a mistake.
func bad(format string, args ...any) error { return refuse(http.StatusBadRequest, format, args...) }

// writeProblem answers with an error.
func writeProblem(w http.ResponseWriter, err error) {
	status, detail := http.StatusServiceUnavailable, err.Error()
	var refused *refusal
	var invalid *insight.InvalidError
	switch {
	case errors.As(err, &refused):
		status = refused.status
	case errors.As(err, &invalid):
		status = http.StatusBadRequest
	case errors.Is(err, context.DeadlineExceeded):
		status, detail = http.StatusGatewayTimeout, fmt.Sprintf("The store did not answer within %v. Ask again, or look at GET /v1/state.", askTimeout)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Problem{"about:blank", http.StatusText(status), status, detail}) // on an error the client has gone
}
