package daemon

import (
	"os"
	"sync"

	"go.uber.org/zap"
)

// A reread is a value that is read from files, and read again when it is needed
// and one of them has changed. What cannot be read leaves the last value. It is
// safe for concurrent use.
type reread[T any] struct {
	setting string
	files   []string
	read    func() (T, error)
	log     *zap.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // of files, when value was read
	broken bool          // reading has failed since, and that has been told
}

// newReread reads the files for the first time. The error is that of read.
func newReread[T any](setting string, files []string, read func() (T, error), log *zap.Logger) (*reread[T], error) {
	r := &reread[T]{setting: setting, files: files, read: read, log: log}
	var err error
	r.seen = r.look()
	r.value, err = read()
	return r, err
}

// get returns the value.
func (r *reread[T]) get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Looked at before it is read: what changes in between is read next time.
	now := r.look()
	if !r.broken && unchanged(r.seen, now) {
		return r.value
	}
	value, err := r.read()
	if err != nil {
		if !r.broken {
			r.log.Warn("a file for connections cannot be read; what it held before stays in use",
				zap.String("setting", r.setting), zap.Error(err))
		}
		r.broken = true
		return r.value
	}
	r.log.Info("a file for connections has changed and counts for new ones", zap.String("setting", r.setting))
	r.value, r.seen, r.broken = value, now, false
	return r.value
}

// look returns what the file system says of the files; nil of one that it does
// not have.
func (r *reread[T]) look() []os.FileInfo {
	infos := make([]os.FileInfo, len(r.files))
	for i, f := range r.files {
		infos[i], _ = os.Stat(f)
	}
	return infos
}

func unchanged(a, b []os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil || !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}
