package manifests

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
)

// An object is one of Kubernetes.
type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`

	// value is the whole object, with numbers as the schemas want them.
	value any
	// text is the same as JSON.
	text []byte
}

func (o *object) String() string { return o.Kind + "/" + o.Metadata.Name }

// A document of YAML that is no object. Value files and rules are such documents.
var errNoObject = errors.New("a document without apiVersion and kind")

// truth is a value that YAML 1.1 and so Kubernetes read as true or false, but YAML 1.2 as a text.
var truth = regexp.MustCompile(`(?mi)^[^#\n]*[:-] +(yes|no|on|off) *$`)

// parse returns the objects of a file of YAML. A file without any is [errNoObject].
func parse(text []byte) ([]*object, error) {
	if line := truth.Find(text); line != nil {
		return nil, fmt.Errorf("%q: Kubernetes reads this as true or false; write it in quotes, or write true or false", line)
	}
	loader, err := yaml.NewLoader(bytes.NewReader(text), yaml.WithV4Defaults())
	if err != nil {
		return nil, err
	}
	var objects []*object
	for {
		var document any
		switch err := loader.Load(&document); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case document == nil:
			continue // a template that renders nothing
		}
		o, err := newObject(document)
		if err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

func newObject(document any) (*object, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	o := &object{text: text}
	if err := json.Unmarshal(text, o); err != nil || o.APIVersion == "" || o.Kind == "" {
		return nil, errNoObject
	}
	o.value, err = jsonschema.UnmarshalJSON(bytes.NewReader(text))
	return o, err
}

// empty returns the paths of all values that are null. The API server ignores them, so a template
// that renders one has lost a value.
func empty(value any, path string) []string {
	var found []string
	switch v := value.(type) {
	case nil:
		found = append(found, path)
	case map[string]any:
		for k, inner := range v {
			found = append(found, empty(inner, path+"."+k)...)
		}
	case []any:
		for i, inner := range v {
			found = append(found, empty(inner, fmt.Sprintf("%s[%d]", path, i))...)
		}
	}
	return found
}
