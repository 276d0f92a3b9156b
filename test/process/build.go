package process

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

const (
	module = "github.com/slidegate/slidegate"
	// builtVariable names the environment variable with the directory of built binaries.
	builtVariable = "SLIDEGATE_TEST_BUILT"
)

// A built is a command of this module and the folder of its binary.
type built struct {
	dir string
	err error
}

var (
	builtMu sync.Mutex
	builds  = make(map[string]built) // by package
)

// Main runs the tests of a package and then removes the binaries that they built.
// A TestMain calls it: os.Exit(process.Main(m)).
func Main(m *testing.M) int {
	defer func() {
		for _, b := range builds {
			// If removing fails, a temporary file is left.
			_ = os.RemoveAll(b.dir)
		}
	}()
	return m.Run()
}

// Build returns the path of the binary of a package of this module, such as
// cmd/rls, without the profile of a release: make lint then finds the packages compiled. The
// first call builds it, unless make test has done so: builtVariable names its directory. It is safe for
// concurrent use.
func Build(pkg string) (string, error) {
	if dir := os.Getenv(builtVariable); dir != "" {
		return filepath.Join(dir, path.Base(pkg)), nil
	}
	builtMu.Lock()
	defer builtMu.Unlock()
	b, ok := builds[pkg]
	if !ok {
		b.dir, b.err = build(pkg)
		builds[pkg] = b
	}
	return filepath.Join(b.dir, path.Base(pkg)), b.err
}

func build(pkg string) (dir string, err error) {
	if dir, err = os.MkdirTemp("", path.Base(pkg)); err != nil {
		return "", err
	}
	// The build runs in the folder of this module, because the tests may be in another
	// module, which has other versions of dependencies.
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return dir, fmt.Errorf("finding the folder of %s: %w", module, err)
	}
	cmd := exec.Command("go", "build", "-pgo=off", "-trimpath", "-ldflags=-w", "-o", filepath.Join(dir, path.Base(pkg)), module+"/"+pkg)
	cmd.Dir = strings.TrimSpace(string(root))
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return dir, nil
}
