package servers

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// text asks the server and fails the test on an error.
func text(t *testing.T, s *PostgresServer, sql string) string {
	t.Helper()
	got, err := s.Text(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

func TestPostgresEndsAndStarts(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t, PostgresOptions{})
	if err := s.Exec("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"); err != nil {
		t.Fatal(err)
	}
	addr := s.Addr()
	for name, end := range map[string]func(){"stop": s.Stop, "kill": s.Kill, "kill frozen": func() { s.Pause(); s.Kill() }} {
		end()
		s.Stop() // a second time is harmless
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			t.Errorf("%s: dialing: got no error", name)
		}
		s.Start()
		s.Start()
		if got := text(t, s, "SELECT n FROM kept"); got != "7" || s.Addr() != addr {
			t.Errorf("%s: after starting again: got %s at %s, want 7 at %s", name, got, s.Addr(), addr)
		}
	}
}

func TestPostgresPauseAndResume(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t, PostgresOptions{})
	conn, err := pgx.Connect(t.Context(), s.SocketURL())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	s.Pause()
	answers := make(chan error)
	go func() { answers <- conn.Ping(t.Context()) }()
	// The test can only wait for an answer that must not come.
	select {
	case err := <-answers:
		t.Fatalf("a paused server answered: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	s.Resume()
	if err := <-answers; err != nil {
		t.Errorf("after resuming: %v", err)
	}
	s.Pause() // the cleanup must be able to end a frozen server
}

// TestPostgresAccess looks at who gets in.
func TestPostgresAccess(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t, PostgresOptions{Password: "open-sesame", TLS: true, Settings: []string{"max_connections=20"}})
	if got := text(t, s, "SHOW max_connections"); got != "20" {
		t.Errorf("max_connections: got %s, want 20", got)
	}
	pem, err := os.ReadFile(s.CA())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, tt := range []struct {
		name, password string
		tls            *tls.Config
		want           string // SQLSTATE, empty: gets in
	}{
		{"right", "open-sesame", &tls.Config{RootCAs: roots, ServerName: "localhost"}, ""},
		{"wrong password", "open", &tls.Config{RootCAs: roots, ServerName: "localhost"}, "28P01"},
		{"no TLS", "open-sesame", nil, "28000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o, err := pgx.ParseConfig(s.URL() + "?sslmode=disable")
			if err != nil {
				t.Fatal(err)
			}
			o.Password, o.TLSConfig = tt.password, tt.tls
			conn, err := pgx.ConnectConfig(t.Context(), o)
			if err == nil {
				_ = conn.Close(t.Context())
			}
			var refused *pgconn.PgError
			if errors.As(err, &refused); (err == nil) != (tt.want == "") || err != nil && (refused == nil || refused.Code != tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
