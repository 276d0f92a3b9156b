package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// A Problem is the body of an error (RFC 9457), as application/problem+json.
type Problem struct {
	Type   string `json:"type"` // about:blank
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says what is wrong and what to do.
	Detail string `json:"detail"`
}

func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Problem{ // on an error the client has gone
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...),
	})
}
