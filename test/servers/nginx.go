package servers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

const nginxHint = "install it with ngx_http_auth_request_module, for instance: apt-get install nginx"

// NginxOptions say what to run. Config is required.
type NginxOptions struct {
	// Config is the file with what belongs into http { }. It listens on port 10000,
	// and has 127.0.0.1:8080 for the HTTP port of rls and 127.0.0.1:8000 for the
	// application.
	Config string
	// RLS and Upstream are the host:port of the two.
	RLS, Upstream string
	// Replace holds further changes of the file's text. What is to be replaced
	// must be there.
	Replace map[string]string
}

// An NginxServer is a running nginx.
type NginxServer struct {
	process *process
	addr    string
}

// Nginx starts an nginx for the time of the test.
func Nginx(t testing.TB, o NginxOptions) *NginxServer {
	t.Helper()
	binary, err := nginxBinary()
	if err != nil {
		missing(t, "nginx", nginxHint)
	}
	data, err := os.ReadFile(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for range startAttempts {
		var port int
		if port, err = freePort(false); err != nil {
			break
		}
		n := &NginxServer{addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
		var text string
		if text, err = o.render(string(data), n.addr); err != nil {
			break
		}
		if err = n.start(binary, dir, text); err == nil {
			t.Cleanup(n.process.kill)
			return n
		}
	}
	t.Fatalf("servers: %s: %v", o.Config, err)
	return nil
}

// nginxBinary finds nginx also where PATH has no place for servers.
func nginxBinary() (string, error) {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/nginx")
}

func (o NginxOptions) render(text, listen string) (string, error) {
	var err error
	for _, r := range []struct{ what, from, to string }{
		{"listener", "listen 10000;", "listen " + listen + ";"},
		{"rate-limit service", "server 127.0.0.1:8080;", "server " + o.RLS + ";"},
		{"application", "server 127.0.0.1:8000;", "server " + o.Upstream + ";"},
	} {
		if text, err = replaceOne(text, []string{r.from}, r.to); err != nil {
			return "", fmt.Errorf("address of the %s: %w", r.what, err)
		}
	}
	for from, to := range o.Replace {
		if text, err = replaceOne(text, []string{from}, to); err != nil {
			return "", err
		}
	}
	return text, nil
}

// start runs one nginx, in a single process and with all of its files in dir.
func (n *NginxServer) start(binary, dir, text string) error {
	inHTTP := filepath.Join(dir, "http.conf")
	main := fmt.Sprintf(`daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path %[1]s/body;
    proxy_temp_path %[1]s/proxy;
    fastcgi_temp_path %[1]s/fastcgi;
    uwsgi_temp_path %[1]s/uwsgi;
    scgi_temp_path %[1]s/scgi;
    include %[2]s;
}
`, dir, inHTTP)
	file := filepath.Join(dir, "nginx.conf")
	if err := errors.Join(os.WriteFile(inHTTP, []byte(text), 0o600), os.WriteFile(file, []byte(main), 0o600)); err != nil {
		return err
	}
	p, err := startProcess("nginx", exec.Command(binary, "-p", dir, "-c", file, "-e", "stderr"))
	if err != nil {
		return err
	}
	// It binds before it writes its process id, so what answers is ours.
	if err := p.until(func() error {
		if _, err := os.Stat(filepath.Join(dir, "pid")); err != nil {
			return err
		}
		conn, err := net.DialTimeout("tcp", n.addr, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}); err != nil {
		p.kill()
		return err
	}
	n.process = p
	return nil
}

// Addr returns host:port of the listener.
func (n *NginxServer) Addr() string { return n.addr }

// URL returns http://host:port of the listener.
func (n *NginxServer) URL() string { return "http://" + n.addr }

// Output returns what nginx has said.
func (n *NginxServer) Output() string { return n.process.output() }
