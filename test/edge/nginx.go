package edge

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/slidegate/slidegate/test/process"
)

const nginxHint = "install it with ngx_http_auth_request_module, for instance: apt-get install nginx"

// Nginx starts an nginx for the time of the test. Its file is the content of
// http { }: it listens on port 10000, and has 127.0.0.1:8080 for rls and
// 127.0.0.1:8000 for the application.
func Nginx(t process.TB, o GatewayOptions) *Gateway {
	t.Helper()
	binary, err := nginxBinary()
	if err != nil {
		process.Missing(t, "nginx", nginxHint)
	}
	return startGateway(t, o, func(listen string) []address {
		return []address{
			{"listener", "listen 10000;", "listen " + listen + ";"},
			{"rate-limit service", "server 127.0.0.1:8080;", "server " + o.RLS + ";"},
			{"application", "server 127.0.0.1:8000;", "server " + o.Upstream + ";"},
		}
	}, func(dir, text, listen string) (*process.Process, error) { return runNginx(binary, dir, text, listen) })
}

// nginxBinary finds nginx in PATH or in /usr/sbin.
func nginxBinary() (string, error) {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/nginx")
}

// runNginx runs one nginx, in a single process and with all of its files in dir.
func runNginx(binary, dir, text, listen string) (*process.Process, error) {
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
		return nil, err
	}
	p, err := process.Start("nginx", exec.Command(binary, "-p", dir, "-c", file, "-e", "stderr"))
	if err != nil {
		return nil, err
	}
	// nginx binds before it writes its process id, so the answering process is ours.
	if err := p.Until(func() error {
		if _, err := os.Stat(filepath.Join(dir, "pid")); err != nil {
			return err
		}
		return process.Reach(listen)
	}); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}
