package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// Stdin is the path that stands for standard input. The caller has its content.
const Stdin = "-"

// A Listing is the files that some paths of rules stand for.
type Listing struct {
	Files   []string         // of rules, sorted
	Skipped []string         // regular files of other names, sorted
	Dangles []string         // symbolic links in a directory that lead nowhere, in its order
	Failed  []strict.Problem // paths and directories that cannot be read
}

// maxListed bounds the files and directories below a rules path. A wrong path, such as / or a
// home directory, is then reported at once.
const maxListed = 100_000

// Which says which files of a directory hold rules. The zero value: *.yaml and *.yml.
type Which struct {
	// IgnoreDotFiles ignores names that begin with a dot.
	IgnoreDotFiles bool
	// All takes every regular file, whatever its name.
	All bool
	// Prefix takes only files whose path below the directory begins with it, and a slash or a
	// dot after it. Empty: all.
	Prefix string
}

// String describes the files, for messages.
func (c Which) String() string {
	text := "*.yaml or *.yml file"
	if c.All {
		text = "file"
	}
	if c.Prefix != "" {
		text += fmt.Sprintf(" in %s/ or named %[1]s.*", strict.Quoteless(c.Prefix))
	}
	return text
}

// atTop reports whether an entry of the directory itself may be a file with the prefix, or
// hold some.
func (c Which) atTop(dir string, e os.DirEntry) bool {
	switch {
	case c.Prefix == "" || strings.HasPrefix(e.Name(), c.Prefix+"."):
		return true
	case e.Name() != c.Prefix || e.Type().IsRegular():
		return false
	}
	info, err := os.Stat(filepath.Join(dir, e.Name()))
	return err != nil || info.IsDir()
}

// List lists the files that paths of rules stand for. A path stands for itself, or for the
// files of a directory and of all directories below it. A symbolic link counts as its target.
// Every file and directory counts once, by the first of its paths. In a directory, names
// that begin with a dot come last.
func List(paths []string, which Which) *Listing {
	w := walk{Which: which, seen: make(map[string]bool), most: maxListed}
	for _, path := range paths {
		if err := w.path(path); err != nil {
			w.Failed = append(w.Failed, strict.Problem{File: path, Message: err.Error()})
		}
	}
	slices.Sort(w.Files)
	slices.Sort(w.Skipped)
	return &w.Listing
}

func (w *walk) path(path string) error {
	leadsTo := resolved(path)
	if w.seen[leadsTo] {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case path == Stdin: // see Input
	case err != nil:
		return plainError(err)
	case info.IsDir():
		return w.dir(path, leadsTo, true)
	}
	w.seen[leadsTo] = true
	w.Files = append(w.Files, path)
	return nil
}

// walk makes a listing of a directory.
type walk struct {
	Listing
	Which
	seen map[string]bool // where the paths lead to
	most int             // how many more there may be
}

var errTooMany = fmt.Errorf("more than %d files and directories in it and below", maxListed)

// dir lists a directory. leadsTo is its path without symbolic links. top: it is the directory of
// the rules, not one below. Of the errors of directories below it, dir returns only errTooMany,
// and reports the others.
func (w *walk) dir(path, leadsTo string, top bool) error {
	if w.seen[leadsTo] {
		return nil
	}
	w.seen[leadsTo] = true
	entries, err := os.ReadDir(path)
	if err != nil {
		return plainError(err)
	}
	if w.most -= len(entries); w.most < 0 {
		return errTooMany
	}
	volume := isVolume(entries)
	var visible, hidden, data []os.DirEntry
	for _, e := range entries {
		switch name := e.Name(); {
		case top && !w.atTop(path, e):
		case !strings.HasPrefix(name, "."):
			visible = append(visible, e)
		case w.IgnoreDotFiles:
		case !volume || !strings.HasPrefix(name, ".."):
			hidden = append(hidden, e)
		case name == volumeData:
			data = append(data, e)
		}
	}
	for _, e := range slices.Concat(visible, hidden, data) {
		if err := w.entry(path, leadsTo, e); err != nil {
			return err
		}
	}
	return nil
}

// volumeData is the link to the current version of a ConfigMap. Kubernetes keeps versions in
// directories next to it, whose names begin with two dots. Old and coming versions are
// ignored.
const volumeData = "..data"

func isVolume(entries []os.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() == volumeData && e.Type()&os.ModeSymlink != 0
	})
}

func (w *walk) entry(dir, dirLeadsTo string, e os.DirEntry) error {
	path, leadsTo, mode := filepath.Join(dir, e.Name()), filepath.Join(dirLeadsTo, e.Name()), e.Type()
	if mode&os.ModeSymlink != 0 {
		info, err := os.Stat(path)
		if err != nil {
			w.link(path, err)
			return nil
		}
		mode, leadsTo = info.Mode().Type(), resolved(path)
	}
	if mode.IsDir() {
		err := w.dir(path, leadsTo, false)
		if err != nil && !errors.Is(err, errTooMany) {
			w.Failed = append(w.Failed, strict.Problem{File: path, Message: err.Error()})
			return nil
		}
		return err
	}
	switch {
	case w.All && !mode.IsRegular():
	case !w.All && !isRulesFile(path):
		if mode.IsRegular() {
			w.Skipped = append(w.Skipped, path)
		}
	case !w.seen[leadsTo]:
		w.seen[leadsTo] = true
		w.Files = append(w.Files, path)
	}
	return nil
}

// link lists a link whose target cannot be looked at. One that leads nowhere has no rules: Emacs
// locks a file with such a link. If rls may not see the target, reading it is a problem.
func (w *walk) link(path string, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR):
		w.Dangles = append(w.Dangles, path)
	case w.All || isRulesFile(path):
		w.Files = append(w.Files, path)
	}
}

// resolved returns a path without symbolic links, or the absolute path if a link cannot be
// followed.
func resolved(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	if end, err := filepath.EvalSymlinks(path); err == nil {
		return end
	}
	return path
}

func isRulesFile(name string) bool {
	ext := filepath.Ext(name)
	return strings.EqualFold(ext, ".yaml") || strings.EqualFold(ext, ".yml")
}
