package envoydump

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// decode reads one JSON value, of at most maxBytes. It reads the rest if a part is of another form, which is a
// json.UnmarshalTypeError.
func decode(from io.Reader, out any) error {
	err := json.NewDecoder(io.LimitReader(from, maxBytes)).Decode(out)
	switch wrong := (*json.UnmarshalTypeError)(nil); {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("ends early, or is above %d MiB", maxBytes>>20)
	case err != nil && !errors.As(err, &wrong):
		return fmt.Errorf("is not JSON as Envoy writes it: %w", err)
	}
	return err
}

// dump reads an answer of /config_dump.
func (s *Seen) dump(from io.Reader) error {
	s.Rejected, s.Routes, s.Discovered = make(map[string]string), make(map[string]*Routes), make(map[string]Any)
	s.Clusters, s.Assignments = make(map[string]*Cluster), make(map[string]*Assignment)
	var doc struct {
		Configs []map[string]json.RawMessage `json:"configs"`
		file
	}
	if err := decode(from, &doc); err != nil {
		return fmt.Errorf("the dump %w", err)
	}
	if doc.Configs == nil {
		doc.Configs = doc.asDump()
	}
	if doc.Configs == nil {
		return errors.New(`the dump has no "configs": give the answer of Envoy's /config_dump?include_eds, or the file that Envoy reads`)
	}
	for _, config := range doc.Configs {
		for _, key := range slices.Sorted(maps.Keys(config)) {
			if s.config(key, config[key]) != nil {
				s.NotRead = append(s.NotRead, key)
			}
		}
	}
	return nil
}

// A file is what Envoy reads.
type file struct {
	Node   json.RawMessage `json:"node,omitempty"`
	Admin  json.RawMessage `json:"admin,omitempty"`
	Static *struct {
		Listeners []json.RawMessage `json:"listeners"`
		Clusters  []json.RawMessage `json:"clusters"`
	} `json:"static_resources,omitempty"`
}

// asDump returns the file as parts of a dump. Nil: it is no such file.
func (f file) asDump() []map[string]json.RawMessage {
	if f.Static == nil {
		return nil
	}
	all := make(map[string]json.RawMessage)
	for key, list := range map[string][]json.RawMessage{"listener": f.Static.Listeners, "cluster": f.Static.Clusters} {
		var wrapped []map[string]json.RawMessage
		for _, one := range list {
			wrapped = append(wrapped, map[string]json.RawMessage{key: one})
		}
		all["static_"+key+"s"], _ = json.Marshal(wrapped) // it was JSON
	}
	f.Static = nil
	all["bootstrap"], _ = json.Marshal(f)
	return []map[string]json.RawMessage{all}
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
func (s *Seen) config(key string, data []byte) error {
	switch key {
	case "bootstrap":
		var b struct {
			Node struct {
				Cluster string `json:"cluster"`
				Build   struct {
					Version struct {
						Major int `json:"major_number"`
						Minor int `json:"minor_number"`
						Patch int `json:"patch"`
					} `json:"version"`
				} `json:"user_agent_build_version"`
			} `json:"node"`
			Admin struct {
				Address Address `json:"address"`
			} `json:"admin"`
		}
		err := json.Unmarshal(data, &b)
		v := b.Node.Build.Version
		s.Admin, s.Cluster, s.Version = b.Admin.Address, b.Node.Cluster, [3]int{v.Major, v.Minor, v.Patch}
		return err
	case "static_listeners", "dynamic_listeners", "static_route_configs", "dynamic_route_configs", "static_clusters",
		"dynamic_active_clusters", "static_endpoint_configs", "dynamic_endpoint_configs", "ecds_filters":
		var all []json.RawMessage
		err := json.Unmarshal(data, &all)
		for _, one := range all {
			s.resource(key, one)
		}
		return err
	case "inline_scoped_route_configs", "dynamic_scoped_route_configs":
		s.NotRead = append(s.NotRead, "scoped routes")
	}
	return nil
}

func (s *Seen) resource(key string, data []byte) {
	var is struct {
		resource
		Name   string    `json:"name"`
		Active *resource `json:"active_state"`
		Error  struct {
			Details string
			Failed  struct{ Name string } `json:"failed_configuration"`
		} `json:"error_state"`
	}
	if json.Unmarshal(data, &is) != nil {
		s.NotRead = append(s.NotRead, fmt.Sprintf("a part of %s %s", strings.ReplaceAll(strings.TrimSuffix(key, "s"), "_", " "), is.Name))
	}
	one := is.resource
	if is.Active != nil {
		one = *is.Active
	}
	if is.Error.Details != "" && key == "dynamic_listeners" {
		s.Rejected[cmp.Or(is.Name, is.Error.Failed.Name)] = is.Error.Details
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
}

// clusters reads an answer of /clusters?format=json.
func (l *Live) clusters(from io.Reader) error {
	var is struct {
		All []struct {
			Name  string `json:"name"`
			Hosts []Host `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := decode(from, &is); err != nil {
		return err
	}
	l.Hosts = make(map[string][]Host)
	for _, one := range is.All {
		l.Hosts[one.Name] = one.Hosts
	}
	return nil
}

func (l *Live) stats(from io.Reader) error {
	var is struct {
		Stats []struct {
			Name  string `json:"name"`
			Value any    `json:"value"` // a number, or a text
		} `json:"stats"`
	}
	err := decode(from, &is)
	for _, one := range is.Stats {
		if n, ok := one.Value.(float64); ok && n > 0 {
			l.Stats[one.Name] = uint64(n)
		}
	}
	return err
}

func (l *Live) certificates(from io.Reader) error {
	var is struct {
		All []struct {
			CA   []Certificate `json:"ca_cert"`
			Cert []Certificate `json:"cert_chain"`
		} `json:"certificates"`
	}
	err := decode(from, &is)
	for _, pair := range is.All {
		l.Certificates = slices.Concat(l.Certificates, pair.CA, pair.Cert)
	}
	return err
}

func (l *Live) runtime(from io.Reader) error {
	var is struct {
		Entries map[string]struct {
			Final string `json:"final_value"`
		} `json:"entries"`
	}
	err := decode(from, &is)
	for key, entry := range is.Entries {
		l.Runtime[key] = entry.Final
	}
	return err
}
