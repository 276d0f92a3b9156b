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
	var paths, listed string
	params := make(map[string]string)
	for _, p := range slices.Sorted(maps.Keys(api.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(api.Paths[p])) {
			o := api.Paths[p][method]
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
			paths += item(text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		listed += item("`" + name + "`: " + params[name])
	}
	return fill(written("api"), map[string]string{
		"PATHS": paths, "PARAMETERS": listed, "LIMIT": api.fields("LimitUsage"), "DENIAL": api.fields("Denial"),
	})
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
