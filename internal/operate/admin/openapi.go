package admin

import (
	_ "embed"
	"net/http"
	"net/url"
)

// A document is answered as it stands.
type document string

// openAPI describes the API. docs/openapi.yaml is a link to it.
//
//go:embed openapi.yaml
var openAPI document

func serveOpenAPI(*http.Request, url.Values) (any, error) { return openAPI, nil }
