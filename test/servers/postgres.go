package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/slidegate/slidegate/test/process"
)

const (
	postgresBinary = "postgres"
	postgresHint   = "install PostgreSQL 14 or later, for instance: apt-get install postgresql"
	// postgresPlaces is where Debian keeps its versions, none of which is in PATH.
	postgresPlaces = "/usr/lib/postgresql/*/bin"

	// postgresName is the role and the database that tests use.
	postgresName = "slidegate"
	// postgresFirst is the database that every cluster has.
	postgresFirst = "postgres"
)

// postgresSettings make the server fast. What a test writes need not survive a crash
// of the machine.
var postgresSettings = []string{
	"fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_wal_senders=0", "wal_level=minimal",
	"autovacuum=off", "jit=off", "max_connections=50",
}

// PostgresOptions say what to start. The zero value is a server without TLS that
// needs no password.
type PostgresOptions struct {
	// Password is the password of the role slidegate. Empty: it needs none.
	Password string
	// TLS: connections over TCP use it; see PostgresServer.CA.
	TLS bool
	// Open: the server listens on each address, for callers in another network namespace.
	Open bool
	// Settings are further ones, for instance "max_connections=5".
	Settings []string
}

// A PostgresServer is a PostgreSQL server of its own. It has an empty database
// slidegate and the role slidegate, which has no rights yet. A test can stop it,
// start it again with its data on the same port, and freeze it. Its methods may be
// called in any state. They must be called from the test's goroutine and fail the
// test on an error. Exec and Text return their error and are safe for concurrent use.
type PostgresServer struct {
	t        process.TB
	bin, dir string
	owner    *syscall.Credential // nil: the tests do not run as root
	settings []string
	open     bool
	port     int
	tls      *Authority // nil: no TLS

	process *process.Process // nil while stopped
}

// StartPostgres starts a server. The end of the test kills it. PostgreSQL refuses to run as
// root. If the test runs as root, the server runs as an unprivileged user.
func StartPostgres(t process.TB, o PostgresOptions) *PostgresServer {
	t.Helper()
	s := &PostgresServer{t: t, bin: postgresPath(t), open: o.Open, settings: slices.Concat(postgresSettings, o.Settings)}
	if err := s.create(o); err != nil {
		t.Fatalf("servers: creating a PostgreSQL cluster: %v", err)
	}
	t.Cleanup(s.Kill)
	err := process.Launch(func(port int) error {
		s.port = port
		return s.start()
	})
	if err != nil {
		t.Fatalf("servers: starting PostgreSQL: %v", err)
	}
	role := "CREATE ROLE " + postgresName + " LOGIN"
	if o.Password != "" {
		role += " PASSWORD '" + o.Password + "'"
	}
	for _, sql := range []string{role, "CREATE DATABASE " + postgresName} {
		if err := s.run(postgresFirst, sql); err != nil {
			t.Fatalf("servers: %s: %v", strings.Fields(sql)[1], err)
		}
	}
	return s
}

// postgresPath finds the folder of the newest PostgreSQL.
func postgresPath(t process.TB) string {
	t.Helper()
	if path, err := exec.LookPath(postgresBinary); err == nil {
		// The other programs are next to the file that a link leads to.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path)
		}
	}
	newest, version := "", 0
	paths, _ := filepath.Glob(postgresPlaces) // an error means a malformed pattern
	for _, p := range paths {
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(p))); err == nil && v > version {
			newest, version = p, v
		}
	}
	if newest == "" {
		process.Missing(t, postgresBinary, postgresHint)
	}
	return newest
}

// create makes the files of the server. They are not in the test's own folder:
// other users may not enter that, and its path may be too long for a socket.
func (s *PostgresServer) create(o PostgresOptions) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "postgres"); err != nil {
		return err
	}
	s.t.Cleanup(func() { _ = os.RemoveAll(s.dir) }) // if removing fails, temporary files are left
	if os.Geteuid() == 0 {
		if s.owner, err = unprivileged(); err != nil {
			return err
		}
		if err := s.own(s.dir); err != nil {
			return err
		}
	}
	initdb := exec.Command(filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--username", adminUser,
		"--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions", "--wal-segsize", "1")
	s.lower(initdb)
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	kind, method := "host", "trust"
	if o.Password != "" {
		method = "scram-sha-256"
	}
	if o.TLS {
		kind = "hostssl"
		s.tls = &Authority{dir: s.dir}
		if err := s.tls.Renew(); err != nil {
			return err
		}
		if err := errors.Join(s.own(s.tls.file(serverCert)), s.own(s.tls.file(serverKey))); err != nil {
			return err
		}
		s.settings = append(s.settings, "ssl=on", "ssl_cert_file="+s.tls.file(serverCert), "ssl_key_file="+s.tls.file(serverKey))
	}
	from := "127.0.0.1/32"
	if o.Open {
		from = "all"
	}
	access := "local all all trust\n" + kind + " all all " + from + " " + method + "\n"
	return os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(access), 0o600)
}

// unprivileged returns a user that PostgreSQL agrees to run as.
func unprivileged() (*syscall.Credential, error) {
	var u *user.User
	var err error
	for _, name := range []string{"postgres", "nobody"} {
		if u, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// own gives a file to the user that the server runs as.
func (s *PostgresServer) own(path string) error {
	if s.owner == nil {
		return nil
	}
	return os.Chown(path, int(s.owner.Uid), int(s.owner.Gid))
}

// lower makes a command run as that user, in a folder that the user may enter.
func (s *PostgresServer) lower(cmd *exec.Cmd) {
	cmd.Dir = s.dir
	if s.owner != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	}
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

// Addr returns host:port, which stays the same across Stop and Start.
func (s *PostgresServer) Addr() string {
	return process.Address(s.port)
}

// URL is that of the database over TCP, for the role slidegate without its
// password.
func (s *PostgresServer) URL() string {
	return "postgres://" + postgresName + "@" + s.Addr() + "/" + postgresName
}

// SocketURL is that of the database over the server's socket, where no password is
// needed.
func (s *PostgresServer) SocketURL() string { return s.socketURL(postgresName, postgresName) }

func (s *PostgresServer) socketURL(role, database string) string {
	where := url.Values{"host": {s.dir}, "port": {strconv.Itoa(s.port)}}
	return "postgres://" + role + "@/" + database + "?" + where.Encode()
}

// Output returns what the server has logged since it was started.
func (s *PostgresServer) Output() string {
	if s.process == nil {
		return ""
	}
	return s.process.Output()
}

// CA returns the path of the certificate that has signed the server's, which is
// for localhost and 127.0.0.1. Empty: no TLS.
func (s *PostgresServer) CA() string {
	if s.tls == nil {
		return ""
	}
	return s.tls.file(caFile)
}

// Start starts a stopped server again, with its data, on the same port.
func (s *PostgresServer) Start() {
	s.t.Helper()
	if s.process != nil {
		return
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("servers: starting PostgreSQL again on %s: %v", s.Addr(), err)
	}
}

// Stop shuts the server down and waits until it has ended. The server notifies its
// clients.
func (s *PostgresServer) Stop() {
	s.t.Helper()
	if s.process == nil {
		return
	}
	// SIGINT is PostgreSQL's "fast": it does not wait for clients to leave.
	err := s.process.Signal(syscall.SIGINT)
	if err == nil {
		_, err = s.process.Wait()
	}
	if err != nil {
		s.t.Fatalf("servers: stopping PostgreSQL: %v", err)
	}
	s.process = nil
}

// Kill ends the server and all of its processes, frozen or not. Its connections are
// closed without a message.
func (s *PostgresServer) Kill() {
	if s.process == nil {
		return
	}
	// The first process is frozen while the others are killed, so that it starts no
	// new ones. An error means that it has ended already.
	_ = s.process.Signal(syscall.SIGSTOP)
	for _, pid := range s.sessions() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		s.gone(pid)
	}
	s.process.Kill()
	s.process = nil
}

// Pause freezes the server: the kernel still accepts connections and bytes, and the
// server does not answer.
func (s *PostgresServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a frozen server go on, with everything that was sent meanwhile.
func (s *PostgresServer) Resume() { s.signal(syscall.SIGCONT) }

// signal reaches all processes, the first one first.
func (s *PostgresServer) signal(sig syscall.Signal) {
	s.t.Helper()
	signal(s.t, s.process, "PostgreSQL", sig)
	for deadline := time.Now().Add(process.Timeout); sig == syscall.SIGSTOP && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if state, _ := processState(fmt.Sprintf("/proc/%d/stat", s.process.ID())); state == "T" {
			break // before that it may still start a session
		}
	}
	for _, pid := range s.sessions() {
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}

// sessions returns the processes that the first one has started. Each leads a
// session of its own, so one signal to a process group does not reach them.
func (s *PostgresServer) sessions() []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // an error means a malformed pattern
	var found []int
	for _, path := range stats {
		if _, parent := processState(path); parent == s.process.ID() {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				found = append(found, pid)
			}
		}
	}
	return found
}

// gone waits until a killed process has released its files and ports.
func (s *PostgresServer) gone(pid int) {
	for deadline := time.Now().Add(process.Timeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if state, _ := processState(fmt.Sprintf("/proc/%d/stat", pid)); state == "" || state == "Z" {
			return
		}
	}
}

// processState reads the state and the parent of a process. The name of the
// program before them is in parentheses, and may hold anything.
func processState(path string) (state string, parent int) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", 0
	}
	fields := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1]) // the kernel writes a number
	return fields[0], parent
}

// Exec runs statements in the database slidegate as a user with all rights.
func (s *PostgresServer) Exec(sql string, args ...any) error {
	return s.run(postgresName, sql, args...)
}

func (s *PostgresServer) run(database, sql string, args ...any) error {
	return s.with(database, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// Text returns the only column of the only row, as text.
func (s *PostgresServer) Text(sql string, args ...any) (text string, err error) {
	err = s.with(postgresName, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, append([]any{pgx.QueryResultFormats{pgx.TextFormatCode}}, args...)...).Scan(&text)
	})
	return text, err
}

// with calls use with a connection over the socket.
func (s *PostgresServer) with(database string, use func(context.Context, *pgx.Conn) error) error {
	// Not the test's context: that one has ended when cleanups run.
	ctx, cancel := context.WithTimeout(context.Background(), process.Timeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.socketURL(adminUser, database))
	if err != nil {
		return err
	}
	return errors.Join(use(ctx, conn), conn.Close(ctx))
}

// start runs the server and waits until it answers, or has failed.
func (s *PostgresServer) start() error {
	listen := "127.0.0.1"
	if s.open {
		listen = "0.0.0.0"
	}
	args := []string{"-D", s.data(), "-k", s.dir, "-h", listen, "-p", strconv.Itoa(s.port)}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	path := filepath.Join(s.bin, postgresBinary)
	cmd := exec.Command(path, args...)
	s.lower(cmd)
	p, err := process.Start(path, cmd)
	if err != nil {
		return err
	}
	s.process = p
	// The socket is in a folder of this server: no other server answers there.
	err = p.Until(func() error { return s.run(postgresFirst, "SELECT") })
	if err != nil {
		s.Kill()
	}
	return err
}
