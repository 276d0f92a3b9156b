package envoydump

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Seen is what Envoy shows.
type Seen struct {
	// Admin is where the admin port listens, and Cluster is node.cluster.
	Admin   Address
	Cluster string
	// Version is that of Envoy: 1, 40, 0. Zero: it is not known.
	Version [3]int
	// Listeners are the active ones.
	Listeners []Listener
	// Rejected has the reasons why Envoy runs an older version of a listener, by its name.
	Rejected map[string]string
	Routes   map[string]*Routes
	// Discovered are the HTTP filters that come from a discovery service, by their name.
	Discovered map[string]Any
	Clusters   map[string]*Cluster
	// Assignments are the endpoints of clusters from a discovery service.
	Assignments map[string]*Assignment
	// Live has what the dump does not have. Nil: only a dump was read.
	Live *Live
	// NotRead says what could not be read.
	NotRead []string
}

// Live is the state of a running Envoy.
type Live struct {
	Hosts   map[string][]Host // by cluster; nil: not read
	Runtime map[string]string // final values
	Stats   map[string]uint64 // counters and gauges
	// Certificates are those that Envoy presents and those that it trusts.
	Certificates []Certificate
}

const (
	// maxBytes bounds an answer of Envoy, or a file.
	maxBytes = 256 << 20
	// maxFile bounds a file that Envoy reads.
	maxFile = 16 << 20
	// timeout bounds all questions to Envoy together.
	timeout = 10 * time.Second
)

// Read reads a file with the answer of /config_dump?include_eds, or the file that Envoy reads.
func Read(path string) (*Seen, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	s, err := Decode(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// Decode reads an answer of /config_dump?include_eds, or what Envoy reads, as JSON or YAML.
func Decode(from io.Reader) (*Seen, error) {
	in := bufio.NewReader(from)
	from = in
	if first, _ := in.Peek(1); len(first) == 1 && !bytes.Contains([]byte("{ \n<"), first) {
		var doc map[string]any
		if err := yaml.NewDecoder(io.LimitReader(in, maxFile)).Decode(&doc); err != nil {
			return nil, fmt.Errorf("the file is neither JSON nor YAML: %w", err)
		}
		data, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("the file is not YAML as Envoy reads it: %w", err)
		}
		from = bytes.NewReader(data)
	}
	s := new(Seen)
	if err := s.dump(from); err != nil {
		return nil, err
	}
	s.NotRead = append(s.NotRead, "clusters, runtime, stats and certificates: a dump does not have them")
	return s, nil
}

// Ask asks the admin port at an address, which is HOST:PORT or a URL, for at most 10 s.
func Ask(ctx context.Context, address string) (*Seen, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	base := strings.TrimSuffix(address, "/")
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	s := new(Seen)
	if err := get(ctx, base+"/config_dump?include_eds", s.dump); err != nil {
		return nil, err
	}
	s.Live = &Live{Runtime: make(map[string]string), Stats: make(map[string]uint64)}
	for _, part := range []struct {
		path, query string
		read        func(io.Reader) error
	}{
		{"/clusters", "?format=json", s.Live.clusters},
		{"/runtime", "", s.Live.runtime},
		{"/stats", "?format=json&filter=" + url.QueryEscape(statFilter), s.Live.stats},
		{"/certs", "", s.Live.certificates},
	} {
		if err := get(ctx, base+part.path+part.query, part.read); err != nil {
			s.NotRead = append(s.NotRead, fmt.Sprintf("%s: %v", part.path, err))
		}
	}
	return s, nil
}

// statFilter chooses the counters that checks use: a large mesh has a million others.
const statFilter = `ratelimit\.|ext_authz\.|update_(rejected|success)|upstream_rq_|upstream_cx_|\.ssl\.|outlier_detection\.`

var noRedirects = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func get(ctx context.Context, url string, read func(io.Reader) error) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := noRedirects.Do(r)
	if err != nil {
		return fmt.Errorf("the admin port of Envoy does not answer: %w", err)
	}
	defer func() { _ = response.Body.Close() }() // only read
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the admin port of Envoy answers %s; check that it is the admin port", response.Status)
	}
	return read(response.Body)
}
