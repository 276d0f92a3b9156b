package edge

import (
	"bytes"
	"context"
	"os/exec"
	"syscall"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

// chromiumTimeout is far longer than a page of a test takes on a busy machine.
const chromiumTimeout = 2 * time.Minute

// Chromium opens url in a fresh profile, lets the page run until it is idle, and
// returns its HTML. Every name that ends in .example leads to 127.0.0.1.
func Chromium(t process.TB, url string) string {
	t.Helper()
	binary, err := exec.LookPath("chromium")
	if err != nil {
		process.Missing(t, "chromium", "install it, for instance: apt-get install chromium")
	}
	ctx, cancel := context.WithTimeout(t.Context(), chromiumTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary,
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+t.TempDir(),
		"--host-resolver-rules=MAP *.example 127.0.0.1", "--virtual-time-budget=10000", "--dump-dom", url)
	// Cancel ends its children too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	html, err := cmd.Output()
	if err != nil {
		t.Fatalf("edge: chromium: %v\n%s", err, stderr.String())
	}
	return string(html)
}
