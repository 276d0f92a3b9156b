package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/slidegate/slidegate"

// The commands of this module that are run.
var (
	rlsCommand       = command{pkg: "cmd/rls"}
	customersCommand = command{pkg: "test/customers"}
)

// A command is built once in a test run.
type command struct {
	pkg  string
	once sync.Once
	dir  string
	err  error
}

// Main runs the tests of a package that starts rls, and removes the binaries that
// they built. A TestMain calls it: os.Exit(servers.Main(m)).
func Main(m *testing.M) int {
	defer func() {
		for _, c := range []*command{&rlsCommand, &customersCommand} {
			if c.dir != "" {
				// What is left is a temporary file, which nobody misses.
				_ = os.RemoveAll(c.dir)
			}
		}
	}()
	return m.Run()
}

// binary builds the command, if that has not been done.
func (c *command) binary() (string, error) {
	name := path.Base(c.pkg)
	c.once.Do(func() {
		if c.dir, c.err = os.MkdirTemp("", name); c.err != nil {
			return
		}
		// In its own module, with the versions of that: tests may be in another one.
		dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
		if err != nil {
			c.err = fmt.Errorf("servers: where %s is: %w", module, err)
			return
		}
		build := exec.Command("go", "build", "-o", filepath.Join(c.dir, name), module+"/"+c.pkg)
		build.Dir = strings.TrimSpace(string(dir))
		if out, err := build.CombinedOutput(); err != nil {
			c.err = fmt.Errorf("servers: building %s: %w\n%s", name, err, out)
		}
	})
	return filepath.Join(c.dir, name), c.err
}
