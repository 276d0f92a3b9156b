package main

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// An apiSchema is a part of the description of the API.
type apiSchema struct {
	Ref         string `yaml:"$ref"`
	Description string
	Enum        []string
	Properties  map[string]apiSchema
	Items       *apiSchema
}

type apiContent map[string]struct{ Schema apiSchema }

type apiOperation struct {
	Summary    string
	Security   []any // set if reads on loopback are free
	Parameters []struct {
		Name, Description string
		Schema            apiSchema
	}
	RequestBody struct{ Content apiContent } `yaml:"requestBody"`
}

type openAPI struct {
	Paths      map[string]map[string]apiOperation
	Components struct{ Schemas map[string]apiSchema }
}

// apiText returns the page of the admin API, from its description as OpenAPI.
func apiText() (string, error) {
	const file = "docs/openapi.yaml"
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var api openAPI
	if err := yaml.Unmarshal(data, &api); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	var b strings.Builder
	b.WriteString(apiExample + wrap("[openapi.yaml](../openapi.yaml) has every field. Errors are `application/problem+json`: `detail` says what to do. Unknown names are refused. On loopback, reads need no token unless `admin.token_file` is set: see [operate.md](../operate.md). `***` hides a value that may be a secret.") + "\n" +
		wrap("`/v1/usage`, `/v1/logs` and `/v1/reset` use the store: with Redis, ask one instance. Denials, rankings and resets are those of the instance that answers: ask each."))
	params := make(map[string]string)
	b.WriteString("\n## Paths\n\n")
	for _, p := range slices.Sorted(maps.Keys(api.Paths)) {
		for method, o := range api.Paths[p] {
			var names []string
			for _, q := range o.Parameters {
				names = append(names, "`"+q.Name+"`")
				text := q.Description
				if len(q.Schema.Enum) > 0 {
					text += ": " + strings.Join(q.Schema.Enum, ", ")
				}
				if text != "" {
					params[q.Name] = text
				}
			}
			for _, c := range o.RequestBody.Content {
				for _, field := range slices.Sorted(maps.Keys(api.Components.Schemas[path.Base(c.Schema.Ref)].Properties)) {
					names = append(names, "`"+field+"`")
				}
			}
			text := "`" + strings.ToUpper(method) + " " + p + "`"
			if names != nil {
				text += " (" + strings.Join(names, ", ") + ")"
			}
			text += ": " + o.Summary
			if o.Security == nil {
				text += " Needs an `act` token."
			}
			b.WriteString(item(text))
		}
	}
	b.WriteString("\n## Parameters\n\n")
	for _, name := range slices.Sorted(maps.Keys(params)) {
		b.WriteString(item("`" + name + "`: " + params[name]))
	}
	b.WriteString("\n## A limit in usage\n\n" + api.fields("LimitUsage"))
	b.WriteString("\n## A denial\n\n" + wrap("The log line `denied` has these fields too. Its `left_out` counts the denials since the line before, `amount` is the limit in words, and `digest` is cut to 12 digits.") + "\n" + api.fields("Denial"))
	return b.String(), nil
}

// fields returns a list of the fields of a schema. Those that explain themselves come first.
func (a *openAPI) fields(name string) string {
	var named, others []string
	for field, s := range a.Components.Schemas[name].Properties {
		if s.Description == "" {
			named = append(named, "`"+field+"`")
		} else {
			others = append(others, item("`"+field+"`: "+s.Description))
		}
	}
	slices.SortFunc(named, cmp.Compare[string])
	slices.Sort(others)
	if len(named) > 0 {
		others = append([]string{item(strings.Join(named, ", "))}, others...)
	}
	return strings.Join(others, "")
}

const apiExample = "```console" + `
$ curl -s 'localhost:6070/v1/usage?subject=acme'
$ curl -s -X POST localhost:6070/v1/reset -H "Authorization: Bearer $TOKEN" \
    -H 'Content-Type: application/json' -d '{"subject": "acme", "reason": "ticket 4711"}'
` + "```" + `

`
