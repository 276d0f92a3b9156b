package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// An output is a file that a flag names. A regular file gets its content when it is complete, so a
// replay that fails does not cost the report of the last one. A nil output is that of a flag that is
// not given.
type output struct {
	*os.File
	path string // to which a complete file is renamed; empty: it is no regular file
}

// outputs creates the files of --decisions and --html.
func (r *replayCmd) outputs(c *cli, l loaded) (decisions, page *output, err error) {
	inputs := slices.Concat(r.Logs, r.Requests.Envoy, []string{c.Config, r.Requests.Map, r.Now.Rules, r.Now.Tiers, r.Was.Rules, r.Was.Tiers, l.Rules.Path, l.Tiers.Path})
	if r.Decisions != "" && filepath.Clean(r.Decisions) == filepath.Clean(r.HTML) && isRegular(r.HTML) {
		return nil, nil, usage("--html and --decisions name the same file")
	}
	if decisions, err = createOutput("--decisions", r.Decisions, inputs); err != nil {
		return nil, nil, err
	}
	if page, err = createOutput("--html", r.HTML, inputs); err != nil {
		decisions.drop()
	}
	return decisions, page, err
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
		if in != "" && isRegular(path) && (sameFile(path, in) || isBelow(path, in)) {
			return nil, usage("%s: %s is one of the files that are read, and would be overwritten", flag, path)
		}
	}
	out := &output{path: path}
	name := path + ".part"
	if !isRegular(path) {
		out.path, name = "", path
	}
	var err error
	if out.File, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o666); err != nil { //nolint:gosec // the umask decides, as for every program's output
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return out, nil
}

// isRegular reports whether a path is that of a regular file, or of none.
func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// isBelow reports whether a file exists in a directory or below it.
func isBelow(path, dir string) bool {
	file, err := os.Stat(path)
	root, err2 := os.Stat(dir)
	below, err3 := filepath.Rel(dir, path)
	return err == nil && err2 == nil && err3 == nil && !file.IsDir() && root.IsDir() && filepath.IsLocal(below)
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

func (o *output) close() error {
	if err := o.Close(); err != nil || o.path == "" {
		return err
	}
	return os.Rename(o.Name(), o.path)
}

// drop removes a file that is not complete. After close it does nothing.
func (o *output) drop() {
	if o != nil && o.Close() == nil && o.path != "" {
		_ = os.Remove(o.Name()) // another error is reported
	}
}
