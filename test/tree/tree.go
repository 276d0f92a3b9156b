package tree

import (
	"os"
	"path/filepath"
	"testing"
)

// Read returns the text of a file of the repository. It is for tests two folders below the root.
func Read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Write writes a file.
func Write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
