package tree

import (
	"os"
	"path/filepath"
	"testing"
)

// Read returns the text of a file of the repository. It is for tests two folders below the root.
func Read(t testing.TB, path string) string {
	t.Helper()
	return Text(t, filepath.Join("../..", path))
}

// Text returns the text of a file.
func Text(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Write writes a file and returns its path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
