package admin

import (
	_ "embed"
	"net/http"
	"net/url"
)

// openAPI describes the API. docs/openapi.yaml is a link to it.
//
//go:embed openapi.yaml
var openAPI []byte

func serveOpenAPI(w http.ResponseWriter, _ *http.Request, _ url.Values) {
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(openAPI) // on an error the client has gone
}
