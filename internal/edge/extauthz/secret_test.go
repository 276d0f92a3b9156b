package extauthz

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/net/http/httpguts"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/reuse"
	"github.com/slidegate/slidegate/internal/core/reuse/reusetest"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/test/adaptertest"
)

// TestNoKeyAnywhere sends known and unknown keys in every place, and searches the answers
// and logs for them.
func TestNoKeyAnywhere(t *testing.T) {
	for _, key := range []string{acmeKey, hobbyKey, goneKey, "planted-unknown-key"} {
		for _, positions := range [][]string{
			{"x-api-key: " + key},
			{"x-api-key: " + key + " " + key},
			{"x-api-key: " + key, "x-api-key: " + key},
			{"authorization: Bearer " + key},
			{"authorization: Basic " + basic("user:"+key)},
			{"authorization: Basic " + basic(key+":")},
			{"authorization: Basic " + key},
			{"authorization: ApiKey " + key},
			{"authorization: " + key},
			{"cookie: a=b; key=" + key},
			{"cookie: key=" + key + "; key=" + key},
			{"x-copy: " + key, "x-api-key: " + key},
			nil,
		} {
			for _, path := range []string{"/", "/?api_key=" + key, "/?api%5Fkey=" + key + "&api_key=" + key} {
				for _, context := range []map[string]string{
					nil,
					{"anonymous": "true", "domain": "edge"},
					{"domain": "edge", "descriptors": "api_key;remote_address,path,a=%REQ(x-copy)%,b=%REQ(cookie)%,c=%REQ(:path)%,d=%REQ(authorization)%", "cost": "2"},
					{"domain": "edge", "descriptors": "api_key=" + key + ",x"},
					{"domain": "edge", "descriptors": "api_key=" + key + ",%" + key},
				} {
					noKey(t, key, path, context, positions)
				}
			}
		}
	}
}

// noKey sends one request in every form and searches the answers and logs for the key.
func noKey(t *testing.T, key, path string, context map[string]string, fields []string) {
	t.Helper()
	var logged bytes.Buffer
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&logged), zapcore.DebugLevel))
	warnings := func(message string) func(...slog.Attr) {
		return func(fields ...slog.Attr) { log.Sugar().Warn(message, fields) }
	}
	s := newService(t, nil, func(o *Options) {
		o.RemoveCredential, o.Log = true, log
		o.Decider = decide.NewDecider(o.Decider.Rules(), decide.Options{Store: failingStore, Log: warnings})
	})
	for form, in := range map[string]*authv3.CheckRequest{"joined": ask(path, context, fields...), "raw": askRaw(path, context, fields...)} {
		if out := s.check(t, in); strings.Contains(out.String(), key) {
			t.Errorf("%s %s %q %v: the key is in %v", form, path, fields, context, out)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/authz"+path, nil)
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.HTTPHandler(nil).ServeHTTP(w, r)
	if out := fmt.Sprint(w.Header(), w.Body); strings.Contains(out, key) {
		t.Errorf("HTTP %s %q: the key is in %s", path, fields, out)
	}
	if strings.Contains(logged.String(), key) {
		t.Errorf("%s %q %v: the key is in the log: %s", path, fields, context, &logged)
	}
}

// TestForget proves that Forget leaves nothing of a request, also behind the ends of slices.
func TestForget(t *testing.T) {
	for name, fields := range map[string][]string{
		"known":   {"x-api-key: " + acmeKey, "cookie: session=s; key=x", "x-route: r"},
		"unknown": {"x-api-key: planted-key"},
	} {
		s := newService(t, nil, func(o *Options) { o.RemoveCredential, o.PlainKeys = true, true })
		in := askRaw("/private?api_key=planted-key&a=b", map[string]string{"domain": "edge", "descriptors": "api_key;api_key=demo;remote_address=%REQ(x-route)%;a=%LABEL(none)%"}, fields...)
		c := new(call)
		for range 4 {
			read(t, &c.in, in)
			_, _ = s.decide(t.Context(), true, c)
			s.appendAnswer(nil, c)
			c.Forget()
			reusetest.NothingIn(t, name+": call", reflect.ValueOf(c).Elem())
		}
		if r := s.meters.results; r[Authenticated] != r[Limited] || r[Limited]+r[Unknown]/2 != 2 {
			t.Errorf("%s: %v, want two that pass and two that are limited, or all unknown", name, r)
		}
	}
	c := &call{state: state{reply: reply{body: make([]byte, reuse.MaxBytes+1)}, entries: make([]descriptors.Entry, reuse.MaxBytes)}}
	if c.Forget(); c.reply.body != nil || c.entries != nil {
		t.Error("the memory of a large request is kept")
	}
}

// FuzzCheck sends arbitrary messages to three services with the same history. All give the
// same answer. It has a status and the response for that status. It contains no key, and no
// value that breaks a response.
func FuzzCheck(f *testing.F) {
	context := map[string]string{"domain": "edge", "descriptors": "api_key;remote_address;route=%REQ(x-route)%", "cost": "1"}
	for _, m := range []*authv3.CheckRequest{
		{},
		ask("/?api_key=planted-key", context), ask("/", context, "x-api-key: acme-key", "x-route: login"),
		askRaw("/", map[string]string{"anonymous": "true", "domain": "edge"}, "x-route: a\xff"),
		askRaw("/", nil, "authorization: Basic "+basic("u:gone-key"), "cookie: key=planted-key; a=b"),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	change := func(o *Options) { o.RemoveCredential = true }
	s, without := newService(f, nil, change), newService(f, nil, change)
	waits := newWaiting(f, change)
	f.Fuzz(func(t *testing.T, b []byte) {
		encoded, err := adaptertest.Standard(t, s.Service, b)
		for name, other := range map[string]*testService{"without waiting": without, "with waiting": waits} {
			got, gotErr := adaptertest.Unary(t, other.Service, b)
			if status.Code(gotErr) != status.Code(err) || !bytes.Equal(got, encoded) {
				t.Errorf("%s: %q, %v, want %q, %v", name, got, gotErr, encoded, err)
			}
			if diff := cmp.Diff(s.meters.results, other.meters.results); diff != "" {
				t.Errorf("%s: counted (-want +got):\n%s", name, diff)
			}
		}
		if err != nil {
			return // it is not a CheckRequest
		}
		out := new(authv3.CheckResponse)
		if err := proto.Unmarshal(encoded, out); err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		if out.GetStatus() == nil {
			t.Fatal("the answer has no status")
		}
		ok, denied, failed := out.GetOkResponse(), out.GetDeniedResponse(), out.GetErrorResponse()
		if passes := out.GetStatus().GetCode() == 0; passes != (ok != nil) || (denied == nil) == (failed == nil) && !passes {
			t.Errorf("answer = %v", out)
		}
		all := slices.Concat(ok.GetHeaders(), ok.GetResponseHeadersToAdd(), denied.GetHeaders(), failed.GetHeaders())
		for _, h := range all {
			name, value := h.GetHeader().GetKey(), h.GetHeader().GetValue()
			if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) || value == "" || h.GetAppend() != nil { //nolint:staticcheck // deprecated, and must not be there
				t.Errorf("header %q: %q", name, value)
			}
		}
		for _, body := range []string{denied.GetBody(), failed.GetBody()} {
			if !utf8.ValidString(body) {
				t.Errorf("body %q", body)
			}
		}
		if text := out.String(); strings.Contains(text, "planted-key") {
			// A cookie that is not a credential stays, whatever it contains.
			if ok == nil {
				t.Fatalf("a key is in %s", text)
			}
			ok.Headers = slices.DeleteFunc(ok.Headers, func(h *corev3.HeaderValueOption) bool { return h.GetHeader().GetKey() == headerCookie })
			if text = out.String(); strings.Contains(text, "planted-key") {
				t.Errorf("a key is in %s", text)
			}
		}
	})
}
