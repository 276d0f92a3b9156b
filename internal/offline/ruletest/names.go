package ruletest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// Names are the names of files of tests in a directory.
const Names = "*_test.yaml"

// Files returns the files of tests that paths stand for: files, and all files with such a name in
// directories and below, sorted. The error is [strict.Problems] if a directory cannot be read; any
// other one says which path is wrong.
func Files(paths []string) (names []string, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			var where *fs.PathError // it names the operation, which says nothing to an operator
			if errors.As(err, &where) {
				err = where.Err
			}
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !info.IsDir() {
			names = append(names, path)
			continue
		}
		found := false
		list := files.List([]string{path}, files.Which{})
		if len(list.Failed) > 0 {
			return nil, strict.Problems(list.Failed)
		}
		for _, file := range list.Files {
			if ok, _ := filepath.Match(Names, filepath.Base(file)); ok {
				names, found = append(names, file), true
			}
		}
		if !found {
			return nil, fmt.Errorf("%s: the directory has no files named %s", path, Names)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
