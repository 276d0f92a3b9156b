package servers

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// A CustomersServer is an HTTP endpoint that answers whose an API key is; see
// test/customers. A test can stop it, start it again on the same port without its
// records, and freeze it. Its methods fail the test on an error and must be called
// from the test's goroutine.
type CustomersServer struct {
	t       process.TB
	path    string
	addr    string
	process *process.Process // nil while stopped
}

// A Question is a request for a customer that the endpoint has received.
type Question struct {
	At                           time.Time
	Method, Target, Header, Body string
}

// StartCustomers starts an endpoint that is killed when the test ends.
func StartCustomers(t process.TB) *CustomersServer {
	t.Helper()
	path, err := process.Build("test/customers")
	if err != nil {
		t.Fatalf("servers: %v", err)
	}
	s := &CustomersServer{t: t, path: path}
	t.Cleanup(s.Stop)
	err = process.Launch(func(port int) error {
		s.addr = process.Address(port)
		return s.start()
	})
	if err != nil {
		t.Fatalf("servers: starting customers: %v", err)
	}
	return s
}

func (s *CustomersServer) start() error {
	p, err := process.Start("customers", exec.Command(s.path, "-listen", s.addr))
	if err != nil {
		return err
	}
	if err := p.UntilOutput("listening on"); err != nil {
		p.Kill()
		return err
	}
	s.process = p
	return nil
}

// Addr returns host:port, which stays the same across Stop and Start.
func (s *CustomersServer) Addr() string { return s.addr }

// Start starts a stopped endpoint again.
func (s *CustomersServer) Start() {
	s.t.Helper()
	if s.process != nil {
		return
	}
	if err := s.start(); err != nil {
		s.t.Fatalf("servers: starting customers again on %s: %v", s.addr, err)
	}
}

// Stop kills the endpoint, frozen or not.
func (s *CustomersServer) Stop() {
	if s.process != nil {
		s.process.Kill()
		s.process = nil
	}
}

// Pause freezes a running endpoint: the kernel still accepts connections and bytes, and the
// endpoint does not answer.
func (s *CustomersServer) Pause() { s.signal(syscall.SIGSTOP) }

// Resume lets a frozen endpoint go on.
func (s *CustomersServer) Resume() { s.signal(syscall.SIGCONT) }

func (s *CustomersServer) signal(sig syscall.Signal) {
	s.t.Helper()
	signal(s.t, s.process, "endpoint", sig)
}

// Put sets the answer for a digest, an id or an API key.
func (s *CustomersServer) Put(name, answer string) {
	s.t.Helper()
	s.call(http.MethodPut, "/records/"+url.PathEscape(name), answer)
}

// Remove deletes the answer for a digest, an id or an API key.
func (s *CustomersServer) Remove(name string) {
	s.t.Helper()
	s.call(http.MethodDelete, "/records/"+url.PathEscape(name), "")
}

// Rubbish sets one answer for all questions. A status of zero ends that.
func (s *CustomersServer) Rubbish(status int, body string) {
	s.t.Helper()
	if status == 0 {
		s.call(http.MethodDelete, "/rubbish", "")
		return
	}
	s.call(http.MethodPut, "/rubbish?status="+strconv.Itoa(status), body)
}

// Asked returns all questions since the start of the endpoint.
func (s *CustomersServer) Asked() []Question {
	s.t.Helper()
	var all []Question
	if err := json.Unmarshal(s.call(http.MethodGet, "/asked", ""), &all); err != nil {
		s.t.Fatalf("servers: what customers was asked: %v", err)
	}
	return all
}

func (s *CustomersServer) call(method, path, body string) []byte {
	s.t.Helper()
	answer, err := s.try(method, path, body)
	if err != nil {
		s.t.Fatalf("servers: %s %s to customers: %v", method, path, err)
	}
	return answer
}

func (s *CustomersServer) try(method, path, body string) ([]byte, error) {
	r, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.addr+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: process.Timeout}
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, answer)
	}
	return answer, err
}
