package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An output is a file that a flag names. What it had before is there until the first byte is
// written, so a replay that fails at its start does not cost the report of the last one. A nil
// output is that of a flag that is not given.
type output struct {
	file           *os.File
	isNew, begun   bool
	regular, ended bool
}

// outputs creates the files of --decisions and --html.
func (r *replayCmd) outputs(c *cli, l loaded) (decisions, page *output, err error) {
	inputs := slices.Concat(r.Logs, r.Envoy, []string{c.Config, r.Map, r.Rules, r.Tiers, r.Against, r.AgainstTiers, l.Rules.Path, l.Tiers.Path})
	if decisions, err = createOutput("--decisions", r.Decisions, inputs); err != nil {
		return nil, nil, err
	}
	if page, err = createOutput("--html", r.HTML, inputs); err != nil {
		decisions.drop()
		return nil, nil, err
	}
	if decisions != nil && page != nil && page.regular && sameFile(r.Decisions, r.HTML) {
		decisions.drop()
		page.drop()
		return nil, nil, usage("--html and --decisions name the same file")
	}
	return decisions, page, nil
}

// createOutput creates the file that a flag names, unless the command reads it. It returns nil
// without a path.
func createOutput(flag, path string, inputs []string) (*output, error) {
	switch path {
	case "":
		return nil, nil
	case "-":
		return nil, usage("%s: name a file; standard output has the report", flag)
	}
	for _, in := range inputs {
		if in != "" && (isRegular(path) && sameFile(path, in) || isOf(path, in)) {
			return nil, usage("%s: %s is one of the files that are read, and would be overwritten", flag, path)
		}
	}
	_, before := os.Lstat(path)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o666) //nolint:gosec // the umask decides, as for every program's output
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return &output{file: f, isNew: errors.Is(before, os.ErrNotExist), regular: isRegular(path)}, nil
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// sameFile reports whether two paths lead to one file. A path can be - for standard input.
func sameFile(a, b string) bool {
	stat := func(path string) (os.FileInfo, error) {
		if path == "-" {
			return os.Stdin.Stat()
		}
		return os.Stat(path)
	}
	one, err := stat(a)
	other, err2 := stat(b)
	return err == nil && err2 == nil && os.SameFile(one, other)
}

// isOf reports whether a file is one of those that are read if a directory is named: of rules also
// those in the directories below it.
func isOf(path, dir string) bool {
	info, err := os.Stat(dir)
	if err != nil || !info.IsDir() {
		return false
	}
	above, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		above, err = filepath.Abs(above)
	}
	if err != nil {
		return false
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".json": // of Envoy
		return sameFile(above, dir)
	case ".yaml", ".yml":
		for !sameFile(above, dir) {
			if above == filepath.Dir(above) {
				return false
			}
			above = filepath.Dir(above)
		}
		return true
	}
	return false
}

// Write implements [io.Writer].
func (o *output) Write(b []byte) (int, error) {
	if err := o.begin(); err != nil {
		return 0, err
	}
	return o.file.Write(b)
}

// begin removes the former content of the file before the first byte is written.
func (o *output) begin() error {
	if o.begun {
		return nil
	}
	o.begun = true
	if o.regular {
		return o.file.Truncate(0)
	}
	return nil
}

// close closes a file that is complete.
func (o *output) close() error {
	o.ended = true
	return errors.Join(o.begin(), o.file.Close())
}

// drop closes a file that may not be complete. It removes a new file to which nothing was written.
func (o *output) drop() {
	if o == nil || o.ended {
		return
	}
	_ = o.file.Close() // another error is reported
	if o.isNew && !o.begun {
		_ = os.Remove(o.file.Name())
	}
}
