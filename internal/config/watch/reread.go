package watch

import (
	"crypto/tls"
	"fmt"
	"os"
	"slices"
	"sync"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/settings"
)

// A Reread is a value that is read from files. [Reread.Get] reads it again if one of the
// files has changed. If a file cannot be read, the last value stays. It is safe for
// concurrent use.
type Reread[T any] struct {
	setting string
	files   []string
	read    func() (T, error)
	log     *zap.Logger

	mu     sync.Mutex
	value  T
	seen   []os.FileInfo // the files, when value was read
	broken bool          // the last reading failed, which the log says
}

// NewReread reads the files for the first time, and returns the error of read. Later
// changes and failures are logged with the name of the setting.
func NewReread[T any](setting string, files []string, read func() (T, error), log *zap.Logger) (*Reread[T], error) {
	r := &Reread[T]{setting: setting, files: files, read: read, log: log}
	var err error
	r.seen = r.look()
	r.value, err = read()
	return r, err
}

// Get returns the value that is in the files now, or that was there when they could be read last.
func (r *Reread[T]) Get() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	// Look before reading: the next call reads what changes in between.
	now := r.look()
	if !r.broken && !slices.Contains(now, nil) && slices.EqualFunc(r.seen, now, files.Same) {
		return r.value
	}
	value, err := r.read()
	if err != nil {
		if !r.broken {
			r.log.Warn("a file for connections cannot be read; its old content stays in use; correct the file",
				zap.String("setting", r.setting), zap.Error(err))
		}
		r.broken = true
		return r.value
	}
	r.log.Info("a file for connections has changed and counts for new ones", zap.String("setting", r.setting))
	r.value, r.seen, r.broken = value, now, false
	return r.value
}

// look returns what the file system says of the files. It is nil for a file that is
// missing.
func (r *Reread[T]) look() []os.FileInfo {
	infos := make([]os.FileInfo, len(r.files))
	for i, f := range r.files {
		infos[i], _ = os.Stat(f)
	}
	return infos
}

// TLS returns a function that returns the TLS configuration for a new connection. read makes it
// from the files of a section of the settings; see [Reread].
func TLS(section string, files []string, read func(section string) (*tls.Config, error), log *zap.Logger) (func() *tls.Config, error) {
	r, err := NewReread(section, files, func() (*tls.Config, error) { return read(section) }, log)
	if err != nil {
		return nil, err
	}
	return r.Get, nil
}

// Secret returns a function that returns a secret of the settings. If file is set, the
// secret is what the file holds when the function is called; see [Reread]. setting is the
// name of the setting of the file.
func Secret(setting string, fixed settings.Secret, file string, log *zap.Logger) (func() string, error) {
	if file == "" {
		return func() string { return string(fixed.Reveal()) }, nil
	}
	r, err := NewReread(setting, []string{file}, func() (settings.Secret, error) {
		secret, err := settings.ReadPassword(file)
		if err != nil {
			return "", fmt.Errorf("%s: %s: %w", setting, file, err)
		}
		return secret, nil
	}, log)
	if err != nil {
		return nil, err
	}
	return func() string { return string(r.Get().Reveal()) }, nil
}
