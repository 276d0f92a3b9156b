package envoydump

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A reader reads tokens of JSON.
type reader struct{ *json.Decoder }

func newReader(from io.Reader) reader { return reader{json.NewDecoder(io.LimitReader(from, maxBytes))} }

// each calls one for each element of an array or each key of an object.
func (r reader) each(one func(key string) error) error {
	t, err := r.Token()
	if err != nil {
		return err
	}
	if d, ok := t.(json.Delim); !ok || d != '{' && d != '[' {
		return errors.New("this is not the JSON of Envoy")
	}
	for r.More() {
		key := ""
		if t == json.Delim('{') {
			name, err := r.Token()
			if err != nil {
				return err
			}
			key = name.(string) // json.Decoder checks it
		}
		if err := one(key); err != nil {
			return err
		}
	}
	_, err = r.Token()
	return err
}

func (r reader) skip() error {
	var value json.RawMessage
	return r.Decode(&value)
}

// decode reads a value into out. fits is false if the value is JSON of another form.
func (r reader) decode(out any) (fits bool, err error) {
	err = r.Decode(out)
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		return false, nil
	}
	return err == nil, err
}

// dump reads an answer of /config_dump.
func (s *Seen) dump(from io.Reader) error {
	s.Rejected, s.Routes, s.Discovered = make(map[string]string), make(map[string]*Routes), make(map[string]Any)
	s.Clusters, s.Assignments = make(map[string]*Cluster), make(map[string]*Assignment)
	r, found := newReader(from), false
	err := r.each(func(key string) error {
		if key != "configs" {
			return r.skip()
		}
		found = true
		return r.each(func(string) error { return r.each(func(key string) error { return s.config(r, key) }) })
	})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("the dump ends early, or is above %d MiB", maxBytes>>20)
	case err != nil:
		return fmt.Errorf("the dump is not JSON as Envoy writes it: %w", err)
	case !found:
		return errors.New(`the dump has no "configs": give the answer of Envoy's /config_dump?include_eds`)
	}
	return nil
}

// A resource has one of the resources of the dump. The names of the fields are all different.
type resource struct {
	Listener *Listener   `json:"listener"`
	Routes   *Routes     `json:"route_config"`
	Cluster  *Cluster    `json:"cluster"`
	Endpoint *Assignment `json:"endpoint_config"`
	Filter   *Filter     `json:"ecds_filter"`
}

// config reads one field of one of the configs.
func (s *Seen) config(r reader, key string) error {
	switch key {
	case "bootstrap":
		var b struct {
			Node struct {
				Cluster string `json:"cluster"`
			} `json:"node"`
			Admin struct {
				Address Address `json:"address"`
			} `json:"admin"`
		}
		fits, err := r.decode(&b)
		if s.Admin, s.Cluster = b.Admin.Address, b.Node.Cluster; !fits && err == nil {
			s.NotRead = append(s.NotRead, "bootstrap")
		}
		return err
	case "static_listeners", "dynamic_listeners", "static_route_configs", "dynamic_route_configs", "static_clusters",
		"dynamic_active_clusters", "static_endpoint_configs", "dynamic_endpoint_configs", "ecds_filters":
		return r.each(func(string) error { return s.resource(r, key) })
	case "inline_scoped_route_configs", "dynamic_scoped_route_configs":
		s.NotRead = append(s.NotRead, "scoped routes")
	}
	return r.skip()
}

func (s *Seen) resource(r reader, key string) error {
	var is struct {
		resource
		Name   string    `json:"name"`
		Active *resource `json:"active_state"`
		Error  struct {
			Details string
			Failed  struct{ Name string } `json:"failed_configuration"`
		} `json:"error_state"`
	}
	fits, err := r.decode(&is)
	if err != nil {
		return err
	}
	one := is.resource
	if is.Active != nil {
		one = *is.Active
	}
	if is.Error.Details != "" && key == "dynamic_listeners" {
		s.Rejected[cmp.Or(is.Name, is.Error.Failed.Name)] = is.Error.Details
	}
	if !fits {
		s.NotRead = append(s.NotRead, fmt.Sprintf("a part of %s %s", strings.ReplaceAll(strings.TrimSuffix(key, "s"), "_", " "), is.Name))
	}
	switch {
	case one.Listener != nil:
		s.Listeners = append(s.Listeners, *one.Listener)
	case one.Routes != nil:
		s.Routes[one.Routes.Name] = one.Routes
	case one.Cluster != nil:
		s.Clusters[one.Cluster.Name] = one.Cluster
	case one.Endpoint != nil:
		s.Assignments[one.Endpoint.Cluster] = one.Endpoint
	case one.Filter != nil:
		s.Discovered[one.Filter.Name] = one.Filter.Config
	}
	return nil
}

// clusters reads an answer of /clusters?format=json.
func (l *Live) clusters(from io.Reader) error {
	hosts := make(map[string][]Host)
	type cluster struct {
		Name  string `json:"name"`
		Hosts []Host `json:"host_statuses"`
	}
	err := inList(from, "cluster_statuses", func(is *cluster) { hosts[is.Name] = is.Hosts })
	if err == nil {
		l.Hosts = hosts
	}
	return err
}

func (l *Live) stats(from io.Reader) error {
	type stat struct {
		Name  string          `json:"name"`
		Value json.RawMessage `json:"value"` // a number, or a text
	}
	return inList(from, "stats", func(is *stat) {
		var n uint64
		if is.Name != "" && json.Unmarshal(is.Value, &n) == nil {
			l.Stats[is.Name] = n
		}
	})
}

func (l *Live) certificates(from io.Reader) error {
	type pair struct {
		CA   []Certificate `json:"ca_cert"`
		Cert []Certificate `json:"cert_chain"`
	}
	return inList(from, "certificates", func(is *pair) {
		l.Certificates = append(append(l.Certificates, is.CA...), is.Cert...)
	})
}

// inList calls one for each element of a list that a document has.
func inList[T any](from io.Reader, list string, one func(*T)) error {
	r := newReader(from)
	return r.each(func(key string) error {
		if key != list {
			return r.skip()
		}
		return r.each(func(string) error {
			var is T
			fits, err := r.decode(&is)
			if fits {
				one(&is)
			}
			return err
		})
	})
}

func (l *Live) runtime(from io.Reader) error {
	var is struct {
		Entries map[string]struct {
			Final string `json:"final_value"`
		} `json:"entries"`
	}
	err := newReader(from).Decode(&is)
	for key, entry := range is.Entries {
		l.Runtime[key] = entry.Final
	}
	return err
}
