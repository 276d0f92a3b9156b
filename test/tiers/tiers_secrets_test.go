package tiers

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/process"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/stack"
)

// evidence is all text that was found, by place.
type evidence struct {
	mu    sync.Mutex
	found map[string]*strings.Builder
}

func (e *evidence) add(where string, texts ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.found == nil {
		e.found = make(map[string]*strings.Builder)
	}
	if e.found[where] == nil {
		e.found[where] = new(strings.Builder)
	}
	for _, text := range texts {
		e.found[where].WriteString(text + "\n")
	}
}

// of returns the places of a key, or of a part of it, in several encodings.
func (e *evidence) of(key string) (places []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	forms := []string{key[:10], key[len(key)-10:], hex.EncodeToString([]byte(key))[:20], strings.Trim(fmt.Sprintf("%d", []byte(key[:8])), "[]")}
	percent := ""
	for _, c := range []byte(key[:8]) {
		percent += fmt.Sprintf("%%%02x", c)
	}
	forms = append(forms, percent, strings.ToUpper(percent))
	for before := range 3 { // in base64 it depends on what stands before
		text := base64.StdEncoding.EncodeToString([]byte("abc"[:before] + key))
		forms = append(forms, text[4:16])
	}
	for where, text := range e.found {
		all := text.String()
		for _, form := range forms {
			for _, form := range []string{form, strings.ToLower(form)} {
				if at := strings.Index(all, form); at >= 0 {
					places = append(places, fmt.Sprintf("%s: …%q…", where, all[max(0, at-80):min(len(all), at+40)]))
				}
			}
		}
	}
	slices.Sort(places)
	return places
}

// wantNoKeys fails the test if a key is in any text, or if a text is empty.
func (e *evidence) wantNoKeys(t *testing.T, p plantedKeys) {
	t.Helper()
	e.mu.Lock() // a Redis may still report commands
	for where, text := range e.found {
		if text.Len() == 0 {
			t.Errorf("%s: there is nothing", where)
		}
	}
	e.mu.Unlock()
	for place, key := range p {
		for _, at := range e.of(key) {
			t.Errorf("%s: the key is in %s", place, at)
		}
	}
}

// plantedKeys are keys by the place that they are put in.
type plantedKeys map[string]string

// at returns the key of a place.
func (p plantedKeys) at(place string) string {
	if p[place] == "" {
		p[place] = rand.Text()
	}
	return p[place]
}

// secretRules has API keys in rules, as some operators do.
func secretRules(p plantedKeys) string {
	return `
domain: edge
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: hour, requests_per_unit: 2}
  - key: api_key
    value: ` + p.at("the value of a rule") + `
    rate_limit: {name: a-customer-of-old, unit: hour, requests_per_unit: 2}
  - key: remote_address
    rate_limit: {name: per-address, unit: hour, requests_per_unit: 1000000}
  - key: note
    rate_limit: {name: per-note, unit: hour, requests_per_unit: 1000000}
  - key: authorization
    rate_limit: {name: per-token, unit: hour, requests_per_unit: 2}
    detailed_metric: true
  - key: X-API-KEY
    rate_limit: {name: per-HEADER, unit: hour, requests_per_unit: 2}
  - key: x-api-key
    value_to_metric: true
    rate_limit: {name: per-header, unit: hour, requests_per_unit: 2}
  - key: watched
    shadow_mode: true
    rate_limit: {name: watched, unit: hour, requests_per_unit: 1}
    descriptors:
      - key: api_key
        shadow_mode: true
        rate_limit: {name: watched-key, unit: hour, requests_per_unit: 1}
`
}

// TestKeysLeaveNoTrace puts API keys in every place where a client or an operator can
// put one, with and without a working source and store. Then it searches for them
// everywhere.
func TestKeysLeaveNoTrace(t *testing.T) {
	eachSource(t, func(_ *testing.T, h *customerSource) { h.wantNoTrace("redis") })
	t.Run("http asked by the key", func(t *testing.T) {
		t.Parallel()
		h := httpSource(t)
		h.t, h.customers = t, make(map[string]customer)
		h.digest = func(key string) string { return key }
		h.env["SLIDEGATE_TIERS_HTTP_SEND"] = "key"
		h.wantNoTrace("memory")
	})
	t.Run("file", func(t *testing.T) {
		t.Parallel()
		testKeysInAFile(t)
	})
}

// secretSettings accept credentials in every place, and log everything.
func secretSettings() map[string]string {
	return map[string]string{
		stack.EnvLogLevel:    "debug",
		stack.EnvCredentials: "header:x-api-key,bearer,basic,apikey,query:key,cookie:session",
	}
}

// testKeysInAFile has customers in a tiers file with plain keys.
func testKeysInAFile(t *testing.T) {
	t.Helper()
	p, e := make(plantedKeys), new(evidence)
	tiers := threeTiers + `
subjects:
  - {id: acme, tier: pro, keys: [{plain: "` + p.at("a customer's") + `"}]}
  - {id: gone, tier: pro, disabled: true, keys: [{plain: "` + p.at("a disabled customer's") + `"}]}
`
	env := secretSettings()
	env[stack.EnvSnapshot] = filepath.Join(t.TempDir(), "logs")
	rls := edge.RLS(t, edge.RLSOptions{Rules: secretRules(p), Tiers: tiers, Env: env})
	sendKeysEverywhere(t, rls, p, e)

	o := edge.RLSOptions{Env: map[string]string{stack.EnvRulesPath: rls.RulesFile(), stack.EnvTiersPath: rls.TiersFile()}}
	for _, args := range [][]string{
		{"validate"},
		{"explain", "--descriptor", "api_key=" + p.at("the value of a rule")},
		{"explain", "--descriptor", "api_key=" + p.at("a customer's") + ",remote_address=192.0.2.1"},
	} {
		got := edge.Run(t, o, "", args...)
		e.add("rls "+args[0], got.Stdout, got.Stderr)
	}
	// A file with a mistake in the line of a key, and keys in every wrong place.
	broken := strings.Replace(tiers, `"}]}`, `"}, {plane: "`+p.at("a misspelled key")+`"}, "`+p.at("a key alone")+`"]}`, 1) +
		"  - key: " + p.at("a key without an id") + "\n" +
		"  - " + p.at("a key for a subject") + "\n" +
		"  - " + p.at("a key for a name") + ": x\n" +
		"  - {id: " + p.at("a key for an id") + ", tier: " + p.at("a key for a tier") + ", disabled: " + p.at("a key for a flag") + "}\n" +
		"  - {id: " + p.at("a key for an id") + ", keys: " + p.at("a key for a list") + ", labels: {region: [" + p.at("a key for a label") + "]}}\n" +
		"  - {id: acme, overrides: {" + p.at("a key for a rule") + ": {window: " + p.at("a key for a time") + ", requests: 1}}}\n"
	if err := rls.WriteTiers(broken); err != nil {
		t.Fatal(err)
	}
	if err := rls.WriteRules(strings.Replace(secretRules(p), "value: ", "value: ["+p.at("a key in a list")+"], valeu: ", 1)); err != nil {
		t.Fatal(err)
	}
	process.Eventually(t, "the broken files to be noticed", func() bool { return stack.Metric(t, rls, "slidegate_config_broken") == "1" })
	got := edge.Run(t, o, "", "validate")
	if got.Code != 1 {
		t.Errorf("rls validate: got exit code %d, want 1", got.Code)
	}
	e.add("rls validate", got.Stdout, got.Stderr)
	got = edge.Run(t, o, "", "validate", "--json")
	e.add("rls validate --json", got.Stdout, got.Stderr)
	if n := strings.Count(got.Stdout, rls.TiersFile()); n < 11 {
		t.Errorf("rls validate --json: got %d problems of the tiers file, want them all:\n%s", n, got.Stdout)
	}
	e.recordPages(t, rls)
	e.recordLog(t, rls)
	kept, err := os.ReadFile(env[stack.EnvSnapshot])
	if err != nil || len(kept) == 0 {
		t.Errorf("the snapshot: got %d bytes, %v", len(kept), err)
	}
	e.add("the snapshot", string(kept))
	e.wantNoKeys(t, p)
}

// sendKeysEverywhere sends keys to every port of rls, in every place, and records the
// answers.
func sendKeysEverywhere(t *testing.T, rls *edge.RLSServer, p plantedKeys, e *evidence) {
	t.Helper()
	sendKeysToLimits(t, rls, p, e)
	sendKeysToAuthorization(t, rls, p, e)
	sendKeysOverHTTP(t, rls, p, e)
}

// badBytes are bytes that make a key malformed.
var badBytes = map[string]string{"not UTF-8": "\xff\xfe", "with control characters": "\x00\x1b[1m", "with a line feed": "\n", "long": strings.Repeat("x", 10_000)}

func sendKeysToLimits(t *testing.T, rls *edge.RLSServer, p plantedKeys, e *evidence) {
	t.Helper()
	conn := stack.Dial(t, rls)
	client := rlsv3.NewRateLimitServiceClient(conn)
	ask := func(in *rlsv3.RateLimitRequest) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		out, err := client.ShouldRateLimit(ctx, in)
		e.add("answers of RateLimitService", prototext.Format(out), fmt.Sprint(err))
	}
	texts := []string{
		"api_key=" + p.at("a customer's"),
		"api_key=" + p.at("a disabled customer's"),
		"api_key=" + p.at("a stranger's"),
		"api_key=" + p.at("the value of a rule"),
		"authorization=Bearer " + p.at("an entry authorization"),
		"x-api-key=" + p.at("an entry x-api-key"),
		"X-API-KEY=" + p.at("an entry X-API-KEY"),
		"nothing=here,api_key=" + p.at("an entry of a descriptor without a rule"),
		"watched=yes,api_key=" + p.at("a customer's"),
		"watched=yes,api_key=" + p.at("an entry of a rule in shadow mode"),
	}
	for range 4 { // more than any of them may
		ask(stack.Request(1, append(slices.Clone(texts), "remote_address=192.0.2.1")...))
		for _, text := range texts {
			ask(stack.Request(1, text, "remote_address=192.0.2.1"))
		}
	}
	for name, bad := range badBytes {
		key := p.at("an entry api_key " + name)
		// Go's own codec refuses to send what is not UTF-8.
		placeholder := strings.Repeat("@", len(bad))
		text, err := proto.Marshal(stack.Request(1, "api_key="+key+placeholder+key, "remote_address=192.0.2.1"))
		if err != nil {
			t.Fatal(err)
		}
		text = bytes.Replace(text, []byte(placeholder), []byte(bad), 1)
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		var out []byte
		err = conn.Invoke(ctx, rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, text, &out, grpc.ForceCodecV2(rawCodec{}))
		cancel()
		e.add("answers of RateLimitService", string(out), fmt.Sprint(err))
	}
	unknown := stack.Request(1, "api_key="+p.at("of a domain without rules"))
	unknown.Domain = "nowhere"
	ask(unknown)

	for place, body := range map[string]string{
		"of /json":                     `{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":"%s"}]}]}`,
		"of /json that is broken":      `{"domain":"edge","descriptors":[{"entries":[{"key":"api_key","value":"%s"`,
		"of /json with a wrong member": `{"domain":"edge","%s":1}`,
		"of /json with a wrong type":   `{"domain":"edge","descriptors":"%s"}`,
		"of /json for a number":        `{"domain":"edge","hits_addend":"%s"}`,
		"of /json without a domain":    `{"descriptors":[{"entries":[{"key":"api_key","value":"%s"}]}]}`,
	} {
		for range 3 {
			e.recordPost(t, rls.HTTP()+"/json", strings.Replace(body, "%s", p.at(place), 1))
		}
	}
}

// rawCodec is a codec for encoded messages.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// recordPost records the answer to a POST. The request may use every page of the admin port, so
// that a handler answers and not the check of the token.
func (e *evidence) recordPost(t *testing.T, target, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+edge.ActToken)
	req.Header.Set("Content-Type", "application/json")
	switch status := e.do(t, req); status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusUnsupportedMediaType:
		t.Errorf("POST %s is %d: no handler read the body", target, status)
	}
}

// do records the answer to a request, and returns its status.
func (e *evidence) do(t *testing.T, req *http.Request) int {
	t.Helper()
	got, err := stack.NewClient(t, "", "127.0.0.1").Do(req)
	if err != nil {
		t.Fatal(err)
	}
	e.add("answers over HTTP", fmt.Sprint(got.Status), fmt.Sprint(got.Header), got.Body)
	return got.Status
}

// credentials are headers and paths with a key, by place.
func credentials(p plantedKeys) map[string]func(headers map[string]string, path *string) {
	header := func(name, value string) func(map[string]string, *string) {
		return func(headers map[string]string, _ *string) { headers[name] = value }
	}
	all := map[string]func(map[string]string, *string){
		"no credential":  func(map[string]string, *string) {},
		"x-api-key":      header("x-api-key", p.at("a customer's")),
		"disabled":       header("x-api-key", p.at("a disabled customer's")),
		"unknown":        header("x-api-key", p.at("a stranger's header x-api-key")),
		"twice":          header("x-api-key", p.at("a header twice")+","+p.at("a header twice, the other one")),
		"bearer":         header("authorization", "Bearer "+p.at("a bearer token")),
		"bearer, broken": header("authorization", "Bearer "+p.at("a bearer token with a space")+" "+p.at("what is behind it")),
		"basic":          header("authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+p.at("a password")))),
		"basic, user":    header("authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(p.at("a user without password")+":"))),
		"basic, broken":  header("authorization", "Basic "+p.at("what is no base64")),
		"apikey":         header("authorization", "ApiKey "+p.at("a scheme ApiKey")),
		"other scheme":   header("authorization", "Negotiate "+p.at("another scheme")),
		"no scheme":      header("authorization", p.at("a header without a scheme")),
		"query":          func(_ map[string]string, path *string) { *path = "/orders?page=2&key=" + p.at("a query parameter") },
		"query, hidden":  func(_ map[string]string, path *string) { *path = "/orders?k%65y=" + p.at("an escaped query parameter") },
		"query, twice":   func(_ map[string]string, path *string) { *path = "/?key=" + p.at("a parameter twice") + "&key=b" },
		"query, broken":  func(_ map[string]string, path *string) { *path = "/?key=%zz" + p.at("a broken parameter") },
		"cookie":         header("cookie", "a=b; session="+p.at("a cookie")+"; c=d"),
		"cookie, twice":  header("cookie", "session="+p.at("a cookie twice")+"; session=x"),
		"cookie, quoted": header("cookie", `session="`+p.at("a quoted cookie")+`"`),
	}
	for name, bad := range badBytes {
		all["x-api-key "+name] = header("x-api-key", p.at("a header "+name)+bad+p.at("a header "+name))
		all["bearer "+name] = header("authorization", "Bearer "+p.at("a token "+name)+bad)
	}
	return all
}

func sendKeysToAuthorization(t *testing.T, rls *edge.RLSServer, p plantedKeys, e *evidence) {
	t.Helper()
	client := authv3.NewAuthorizationClient(stack.Dial(t, rls))
	ask := func(in *authv3.CheckRequest) {
		ctx, cancel := context.WithTimeout(t.Context(), process.Patience)
		defer cancel()
		out, err := client.Check(ctx, in)
		e.add("answers of Authorization", prototext.Format(out), fmt.Sprint(err))
	}
	contexts := []map[string]string{
		nil,
		{"domain": "edge"},
		{"domain": "edge", "anonymous": "true"},
		// Templates that put keys into descriptors, and a malformed one.
		{"domain": "edge", "descriptors": "note=%REQ(x-api-key)%;note=%REQ(authorization)%;note=%REQ(cookie)%;note=%KEY%;note=%PATH%"},
		{"domain": "edge", "descriptors": "note=%REQ(x-api-key"},
		{"domain": "edge", "cost": p.at("a cost")},
	}
	for _, put := range credentials(p) {
		for _, context := range contexts {
			headers, path := map[string]string{}, "/orders"
			put(headers, &path)
			if !valid(headers) {
				continue // Go's own client refuses to send it; header_map can have it
			}
			in := checkOf(headers)
			in.Attributes.Request.Http.Path = path
			in.Attributes.ContextExtensions = context
			ask(in)
		}
		// The same in the raw form, which can have any bytes.
		headers, path := map[string]string{}, "/orders"
		put(headers, &path)
		in := checkOf(nil)
		in.Attributes.Request.Http.Path = path
		in.Attributes.Request.Http.HeaderMap = &corev3.HeaderMap{}
		for name, value := range headers {
			in.Attributes.Request.Http.HeaderMap.Headers = append(in.Attributes.Request.Http.HeaderMap.Headers,
				&corev3.HeaderValue{Key: name, RawValue: []byte(value)})
		}
		for range 3 {
			in.Attributes.ContextExtensions = contexts[1]
			ask(in)
		}
	}
}

// valid reports whether protobuf takes the values.
func valid(headers map[string]string) bool {
	_, err := proto.Marshal(checkOf(headers))
	return err == nil
}

func sendKeysOverHTTP(t *testing.T, rls *edge.RLSServer, p plantedKeys, e *evidence) {
	t.Helper()
	address := strings.TrimPrefix(rls.HTTP(), "http://")
	for _, put := range credentials(p) {
		headers, path := map[string]string{}, "/orders"
		put(headers, &path)
		lines := []string{"Host: localhost", "Connection: close"}
		for name, value := range headers {
			lines = append(lines, name+": "+strings.NewReplacer("\n", " ", "\x00", "\x7f").Replace(value))
		}
		for _, target := range []struct {
			path  string
			lines []string
		}{
			{path: "/authz" + path},
			{path: "/authz?domain=edge", lines: []string{"X-Original-URI: " + path}},
			{path: "/authz?domain=edge&anonymous=true&denied_status=403", lines: []string{"X-Forwarded-Uri: " + path, "X-Forwarded-Method: POST"}},
			{path: "/authz?domain=edge&domain=" + p.at("a query of the proxy"), lines: []string{"X-Original-URI: " + path}},
			{path: "/nowhere" + path},
			{path: "/json" + path},
			{path: "/healthcheck" + path},
		} {
			e.recordRaw(t, address, "GET "+target.path+" HTTP/1.1\r\n"+strings.Join(slices.Concat(lines, target.lines), "\r\n")+"\r\n\r\n")
		}
	}
	// What is no HTTP, and what is no path.
	e.recordRaw(t, address, "GET /authz HTTP/9\r\nX-Api-Key: "+p.at("a broken request")+"\r\n\r\n")
	e.recordRaw(t, address, "GET /authz/%zz"+p.at("a broken path")+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	e.recordRaw(t, address, "GET /authz/ HTTP/1.1\r\nHost: a\r\nX-Api-Key "+p.at("a broken header")+"\r\n\r\n")
	for _, target := range []string{"/v1/tiers/lookup?digest=", "/v1/tiers/lookup?key="} {
		// An operator may put a key in the place of a digest. The answer must not repeat it.
		e.recordRaw(t, strings.TrimPrefix(rls.Admin(), "http://"), "GET "+target+url.QueryEscape(p.at("a lookup"))+" HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+edge.ActToken+"\r\nConnection: close\r\n\r\n")
	}
	for _, body := range []string{`{"digest":"%s"}`, `{"key":"%s"}`, `"%s"`, `%s`, `{"%s":`} {
		e.recordPost(t, rls.Admin()+"/v1/tiers/invalidate", strings.Replace(body, "%s", p.at("an invalidation"), 1))
	}
}

// recordRaw records the bytes of an answer.
func (e *evidence) recordRaw(t *testing.T, address, request string) {
	t.Helper()
	conn := stack.DialRaw(t, address)
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(conn)
	if err != nil && len(got) == 0 {
		t.Fatalf("%.60q: %v", request, err)
	}
	e.add("answers over HTTP", string(got))
}

// recordPages records every page of the admin port.
func (e *evidence) recordPages(t *testing.T, rls *edge.RLSServer) {
	t.Helper()
	for _, path := range []string{
		"/", "/metrics", "/rlconfig", "/debug/pprof/", "/debug/pprof/cmdline",
		"/debug/pprof/goroutine?debug=1", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1", "/debug/pprof/allocs?debug=1",
		"/debug/pprof/block?debug=1", "/debug/pprof/mutex?debug=1", "/debug/pprof/threadcreate?debug=1", "/debug/pprof/trace?seconds=1",
	} {
		e.add("admin page "+path, stack.Page(t, rls.Admin()+path))
	}
	for _, path := range []string{"/healthcheck", "/readyz"} {
		got := stack.NewClient(t, rls.HTTP(), "127.0.0.1").Get(path)
		e.add(path, got.Body)
	}
}

// recordLog stops rls and records its log. It must have the line at debug level that every
// transport writes, and that shows most of a request.
func (e *evidence) recordLog(t *testing.T, rls *edge.RLSServer) {
	t.Helper()
	if code, err := rls.Stop(); code != 0 || err != nil {
		t.Errorf("exit code: got %d, %v, want 0", code, err)
	}
	e.add("the log", rls.Output())
	if want := `"level":"debug"`; !regexp.MustCompile(want + `.*"rule":"watched-key"`).MatchString(rls.Output()) {
		t.Errorf("the log has no line with %s of the rule in shadow mode", want)
	}
}

// watch records all commands that a Redis gets from now on.
func (e *evidence) watch(t *testing.T, where, addr string) {
	t.Helper()
	monitor(t, addr, func(line string) { e.add(where, line) })
}

// redisTexts returns every key of a Redis with its value as text.
func redisTexts(t *testing.T, addr string) map[string]string {
	t.Helper()
	c := servers.RedisAt(t, addr)
	keys, err := c.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Errorf("keys of the Redis: got %d, %v", len(keys), err)
	}
	all := make(map[string]string, len(keys))
	for _, key := range keys {
		kind, err := c.Type(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case "hash":
			all[key] = fmt.Sprint(c.HGetAll(t.Context(), key).Val())
		case "string":
			all[key] = c.Get(t.Context(), key).Val()
		case "zset": // of the instances
			all[key] = fmt.Sprint(c.ZRange(t.Context(), key, 0, -1).Val())
		default:
			t.Errorf("%s is a %s", key, kind)
		}
	}
	return all
}

// monitor calls each for every command that a Redis gets from now on, in the form of
// the command MONITOR. It returns when the Redis has agreed.
func monitor(t *testing.T, addr string, each func(line string)) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	if !lines.Scan() || lines.Text() != "+OK" {
		t.Fatalf("MONITOR: got %q, %v", lines.Text(), lines.Err())
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	go func() {
		defer close(done)
		for lines.Scan() {
			each(lines.Text())
		}
		if errors.Is(lines.Err(), bufio.ErrTooLong) {
			t.Errorf("MONITOR: %v", lines.Err())
		}
	}()
}

// ask records what the admin port answers.
func (e *evidence) ask(t *testing.T, rls *edge.RLSServer, method, target, kind, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, rls.Admin()+target, strings.NewReader(body))
	if err != nil {
		return // Go's own client refuses to send it
	}
	req.Header.Set("Authorization", "Bearer "+edge.ActToken)
	req.Header.Set("Accept", "text/html, application/json")
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	e.send(req)
}

// send records the answer to a request.
func (e *evidence) send(req *http.Request) {
	got, err := direct.Do(req)
	if err != nil {
		return
	}
	defer got.Body.Close()
	body, _ := io.ReadAll(got.Body)
	e.add("answers of the admin port", got.Status, fmt.Sprint(got.Header), string(body))
}

// recordViews records every view of the admin port, as a browser, as a script and as JSON.
func (e *evidence) recordViews(t *testing.T, rls *edge.RLSServer) {
	t.Helper()
	get := func(path, accept string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rls.Admin()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+edge.ActToken)
		req.Header.Set("Accept", accept)
		got, err := direct.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if got.StatusCode != http.StatusOK || err != nil {
			t.Errorf("GET %s: got %d, %v, want 200\n%.200s", path, got.StatusCode, err, body)
		}
		e.add(path, fmt.Sprint(got.Header), string(body))
	}
	for _, path := range []string{
		"/v1/usage?subject=acme", "/v1/usage?subject=gone", "/v1/usage?address=192.0.2.1", "/v1/usage?descriptor=edge/route=search", "/v1/logs", "/v1/resets", "/v1/denials?limit=10000",
		"/v1/history", "/v1/top", "/v1/top?by=route", "/v1/top?by=rule", "/v1/top?by=address", "/v1/top?order=near", "/v1/top?order=shadow", "/v1/rules?limit=1000", "/v1/state", "/v1/openapi.yaml",
		"/subject?id=acme", "/subject?address=192.0.2.1", "/denials", "/denials?shadow=only", "/top", "/top?by=route", "/top?by=address", "/rules", "/try", "/audit", "/login", "/", "/rlconfig", "/stats",
	} {
		for _, accept := range []string{"text/html", "application/json", "*/*"} {
			get(path, accept)
		}
	}
	get("/metrics", "application/openmetrics-text; version=1.0.0")
}
