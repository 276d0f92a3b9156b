package httpsource

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/text"
	"github.com/slidegate/slidegate/internal/text/httpfield"
)

// Connections is the maximum number of connections. If all are busy, a question waits.
const Connections = 64

const (
	// idleTimeout is shorter than the usual idle timeouts of servers and load balancers,
	// which begin at 60 s.
	idleTimeout = 50 * time.Second
	// maxHeader bounds the header of an answer in bytes.
	maxHeader = 32 << 10
	// maxBody bounds its body.
	maxBody = 64 << 10
)

// Options of a [Source].
type Options struct {
	// URL is the URL of the endpoint: http or https, with a query if it needs one,
	// without user and password.
	URL *url.URL
	// SendKey sends the API key itself, by POST. It needs https or an address of this machine.
	SendKey bool
	// Token returns the token for Authorization: Bearer. If it is nil or returns an
	// empty text, the field is not sent.
	Token func() string
	// TLS returns the configuration of a new connection. The source does not change it.
	// Nil: the system's authorities and no client certificate.
	TLS func() *tls.Config
	// Timeout bounds one question, in addition to its context.
	Timeout time.Duration
	// Overrides reads the overrides of a record.
	Overrides func([]byte) (map[string]tier.Override, error)
}

// Source implements [tier.Source]. It is safe for concurrent use.
type Source struct {
	opts      Options
	url       *url.URL
	shownURL  string // the URL without its query, for errors
	transport *http.Transport

	// life ends when the source is closed, and each question ends with it.
	life  context.Context
	close context.CancelFunc
}

var _ tier.Source = (*Source)(nil)

// New returns a source that has not connected yet. The settings have checked the options.
func New(o Options) *Source {
	u := o.URL
	shownURL := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	s := &Source{opts: o, url: u, shownURL: shownURL.String()}
	s.life, s.close = context.WithCancel(context.Background())
	s.transport = &http.Transport{
		DialContext:            s.bounded((&net.Dialer{}).DialContext),
		DialTLSContext:         s.bounded(s.dialTLS),
		DisableCompression:     true, // so that maxBody bounds the body as it arrives
		MaxConnsPerHost:        Connections,
		MaxIdleConnsPerHost:    Connections,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              new(http.Protocols),
	}
	s.transport.Protocols.SetHTTP1(true)
	return s
}

var errClosed = errors.New("the source is closed")

// Close ends the lookups that are under way and closes all connections.
func (s *Source) Close() error {
	s.close()
	s.transport.CloseIdleConnections()
	return nil
}

// A dialFunc makes a connection.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// bounded bounds the time of an attempt to connect. The library continues an attempt
// after its caller has given up.
func (s *Source) bounded(dial dialFunc) dialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := s.bound(ctx)
		defer cancel()
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, &connectError{err}
		}
		return conn, nil
	}
}

// A connectError says why there is no connection. The question was not sent.
type connectError struct{ err error }

func (e *connectError) Error() string { return "connecting: " + e.err.Error() }
func (e *connectError) Unwrap() error { return e.err }

// bound returns a context that ends with ctx, after the timeout, or when the source is
// closed.
func (s *Source) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.Timeout)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

func (s *Source) dialTLS(ctx context.Context, network, address string) (net.Conn, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.opts.TLS != nil {
		c = s.opts.TLS().Clone()
	}
	if c.ServerName == "" {
		c.ServerName = s.url.Hostname()
	}
	c.NextProtos = []string{"http/1.1"}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	secured := tls.Client(conn, c)
	if err := secured.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // the handshake's error counts
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return secured, nil
}

// Lookup implements [tier.Source]. With [Options.SendKey], a key with a digest must have
// its Plain.
func (s *Source) Lookup(ctx context.Context, k tier.Key) (*tier.Record, error) {
	switch {
	case s.life.Err() != nil:
		return nil, fmt.Errorf("tiers.http: %s: %w", s.shownURL, errClosed)
	case k.Digest == "" && tier.ValidID(k.ID) != nil:
		return &tier.Record{}, nil // no subject has an invalid id
	case k.Digest != "" && s.opts.SendKey && k.Plain == "":
		return nil, errors.New("tiers.http.send: the endpoint is asked by the API key itself, and this question has only its digest")
	case k.Digest != "" && s.opts.SendKey && !utf8.ValidString(k.Plain):
		return &tier.Record{}, nil // JSON cannot contain it, so it is unknown
	}
	ctx, cancel := s.bound(ctx)
	defer cancel()
	r, err := s.ask(ctx, k)
	if err != nil {
		return nil, fmt.Errorf("tiers.http: %s: %w", s.shownURL, err)
	}
	return r, nil
}

func (s *Source) ask(ctx context.Context, k tier.Key) (*tier.Record, error) {
	req, err := s.request(ctx, k)
	if err != nil {
		return nil, err
	}
	// An http.Client would follow redirections and repeat the URL in its errors.
	resp, err := s.transport.RoundTrip(req)
	if err != nil {
		return nil, s.failed(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }() // the body was read
	if err := checkStatus(resp); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, s.failed(ctx, err)
	case len(body) > maxBody:
		return nil, fmt.Errorf("the answer has more than %d bytes", maxBody)
	}
	var subject *tier.Subject
	if body, err = text.WithoutMark(body); err == nil {
		subject, err = readAnswer(body, s.opts.Overrides)
	}
	switch {
	case resp.StatusCode == http.StatusNotFound && (err != nil || subject != nil):
		return nil, statusError(resp.StatusCode) // the 404 is not from the endpoint
	case err != nil:
		return nil, err
	}
	return &tier.Record{Subject: subject, MaxAge: maxAge(resp.Header)}, nil
}

// failed returns the error of a question without an answer. The library's own errors may
// repeat bytes of the answer, which may repeat the question.
func (s *Source) failed(ctx context.Context, err error) error {
	var connect *connectError
	var network *net.OpError
	switch {
	case s.life.Err() != nil:
		return errClosed
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &connect):
		return connect
	case errors.As(err, &network):
		return network
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the connection was closed before the end of the answer")
	}
	return errors.New("the answer is not valid HTTP")
}

func (s *Source) request(ctx context.Context, k tier.Key) (*http.Request, error) {
	name, value := "digest", k.Digest
	switch {
	case k.Digest == "":
		name, value = "id", k.ID
	case s.opts.SendKey:
		name, value = "key", k.Plain
	}
	var req *http.Request
	var err error
	if !s.opts.SendKey {
		u := *s.url
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += name + "=" + url.QueryEscape(value)
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	} else {
		var body []byte
		if body, err = json.Marshal(map[string]string{name: value}); err == nil {
			req, err = http.NewRequestWithContext(ctx, http.MethodPost, s.url.String(), bytes.NewReader(body))
		}
	}
	if err != nil {
		return nil, errors.New("the question cannot be made") // the cause repeats the URL
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", "slidegate")
	if s.opts.SendKey {
		req.Header.Set("Content-Type", "application/json")
		// It is not sent. With it the library may send the question again.
		req.Header["Idempotency-Key"] = nil
	}
	if s.opts.Token != nil {
		token := s.opts.Token()
		if !httpfield.ValidValue(token) {
			return nil, errors.New("the token has a character that is invalid in a header, perhaps the end of a line")
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
	}
	return req, nil
}

// checkStatus returns why an answer has no record, or nil.
func checkStatus(resp *http.Response) error {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	isJSON := err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	switch {
	case isJSON && (resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusNotFound):
		return nil
	case resp.StatusCode == http.StatusOK:
		return errors.New("the answer is not of the type application/json")
	}
	return statusError(resp.StatusCode)
}

// statusError returns an error that names a status and what may cause it.
func statusError(code int) error {
	advice := ""
	switch {
	case code == http.StatusNotFound, code == http.StatusNoContent:
		advice = `; the JSON {"subject":null} says that a key is unknown`
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		advice = "; check the token and the client certificate"
	case code == http.StatusMethodNotAllowed:
		advice = "; check the method of the question"
	case code >= 300 && code < 400:
		advice = "; redirections are not followed: set the final URL"
	}
	return fmt.Errorf("status %d %s%s", code, http.StatusText(code), advice)
}
