package envoyfile

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

const (
	// maxBytes bounds one file. A dump of a large mesh has some ten MiB.
	maxBytes = 256 << 20
	// maxAliased bounds the values of one document that are found through aliases. Without it ten
	// lines could stand for a billion listeners.
	maxAliased = 1_000_000
	maxDepth   = 100
)

// Read reads files of Envoy's configuration, and all files of directories: bootstraps, listeners,
// route configurations, dumps of /config_dump. The error is [strict.Problems]: everything that is
// wrong.
func Read(paths ...string) (*Config, error) {
	r := &reader{report: &strict.Report{}, config: &Config{}}
	for _, name := range r.files(paths) {
		r.report.File(name)
		src, err := files.ReadFile(name, maxBytes)
		if err != nil {
			r.report.Addf(name, 0, "", "%v", err)
			continue
		}
		r.file(name, src.Data)
	}
	r.finish(paths)
	if err := r.report.Err(); err != nil {
		return nil, err
	}
	return r.config, nil
}

// files returns the files that paths stand for.
func (r *reader) files(paths []string) (names []string) {
	for _, path := range paths {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			names = append(names, path) // reading it reports the error
			continue
		}
		before := len(names)
		entries, err := os.ReadDir(path)
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
				names = append(names, filepath.Join(path, e.Name()))
			}
		}
		switch {
		case err != nil:
			r.report.Addf(path, 0, "", "the directory cannot be read")
		case len(names) == before:
			r.report.Addf(path, 0, "", "the directory has no file *.yaml, *.yml or *.json")
		}
	}
	return names
}

type reader struct {
	report  *strict.Report
	config  *Config
	loose   []*Routes // the route configurations that no manager has
	waiting []waiting
	d       *strict.Decoder // of the current document
	aliased int             // the values of it that were found through aliases
}

// waiting is a manager whose routes are elsewhere.
type waiting struct {
	manager  *Manager
	name     string
	position strict.Position
	d        *strict.Decoder
}

func (r *reader) file(name string, data []byte) {
	docs, problem := strict.Parse(name, data)
	if problem != nil {
		r.report.Add(*problem)
		return
	}
	for _, doc := range docs {
		root := strict.Root(doc)
		if root == nil {
			continue
		}
		r.d = &strict.Decoder{File: name, Report: r.report}
		r.aliased = 0
		r.walk(r.value(root, nil, false), scope{})
	}
}

// scope is what is known where a manager is found.
type scope struct {
	depth    int
	listener string
	port     int
}

// walk finds the managers and the route configurations below a value.
func (r *reader) walk(v value, at scope) {
	if !v.set() || at.depth > maxDepth {
		return
	}
	at.depth++
	switch v.node.Kind {
	case yaml.SequenceNode:
		for _, item := range r.list(v) {
			r.walk(item, at)
		}
	case yaml.MappingNode:
		r.mapping(v, at)
	}
}

// mapping reads a mapping if it is a manager or a route configuration, or what is below it.
func (r *reader) mapping(v value, at scope) {
	n, typ := v.node, ""
	if lookup(n, "@type") != nil || lookup(n, "<<") != nil {
		v, typ = r.typed(v)
	}
	skip := ""
	switch {
	case typ == typeManager:
		r.manager(v, at)
		return
	case lookup(n, "virtual_hosts") != nil:
		r.loose = append(r.loose, r.routes(v))
		return
	case typ == typeDump:
		skip = "static_resources" // the dump repeats the listeners
	case lookup(n, "filter_chains") != nil || lookup(n, "default_filter_chain") != nil:
		q := quiet()
		l := q.object(v)
		socket := q.object(q.object(l.get("address")).get("socket_address"))
		at.listener, at.port = l.text("name"), int(socket.number("port_value", math.MaxUint16, 0))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, below := snake(n.Content[i].Value), n.Content[i+1]
		switch key {
		case "warming_state", "draining_state", "error_state", skip:
			continue
		case "bootstrap":
			if typ == typeDump {
				r.cluster(r.value(below, nil, false))
				continue
			}
		case "node":
			r.cluster(v)
			continue
		}
		r.walk(r.value(below, &strict.Path{Parent: v.Path, Name: key}, v.aliased), at)
	}
}

// cluster keeps node.cluster of a bootstrap.
func (r *reader) cluster(bootstrap value) {
	q := quiet()
	r.config.Cluster = cmp.Or(r.config.Cluster, q.object(q.object(bootstrap).get("node")).text("cluster"))
}

// finish connects the managers with the routes that they name.
func (r *reader) finish(paths []string) {
	named := make(map[string]*Routes)
	for _, l := range r.loose {
		named[l.Name] = l
	}
	for _, w := range r.waiting {
		if w.manager.Routes = named[w.name]; w.manager.Routes == nil {
			w.d.Problem(w.position, "the files have no route configuration %s: add its file, or give a dump of Envoy's /config_dump", strict.Quote(w.name))
		}
	}
	if len(r.config.Managers) == 0 {
		for _, l := range r.loose {
			r.config.Managers = append(r.config.Managers, &Manager{Location: l.Location, Routes: l})
		}
	}
	if len(r.config.Managers) == 0 && r.report.Count() == 0 {
		r.report.Addf(strings.Join(paths, ", "), 0, "", "no HTTP connection manager and no route configuration found: give Envoy's bootstrap, or a dump of its /config_dump")
	}
}
