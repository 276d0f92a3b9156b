package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// memoryStore is the memory store with the file that it is kept in while nothing
// runs.
type memoryStore struct {
	*memstore.Store
	snapshot string // empty: none
	log      *zap.Logger
}

// openMemory returns the memory store as its snapshot has it, if there is one. A
// bad snapshot is put aside and the store is empty; an error means that no
// snapshot can be written to where the settings say, which is better known now
// than at shutdown.
func openMemory(s settings.Memory, log *zap.Logger) (*memoryStore, error) {
	o := bounds(s)
	m := &memoryStore{log: log}
	if s.Snapshot != "" {
		var err error
		if m.snapshot, err = follow(s.Snapshot); err == nil {
			err = writable(m.snapshot)
		}
		if err != nil {
			return nil, fmt.Errorf("store.memory.snapshot: %w", err)
		}
		m.load(o)
	}
	if m.Store == nil {
		m.Store = memstore.New(o)
	}
	return m, nil
}

// bounds are those of the settings. They hold for the logs of rules that decide by
// themselves while Redis is away, too.
func bounds(s settings.Memory) memstore.Options {
	return memstore.Options{
		MaxKeys:  int(min(s.MaxKeys, math.MaxInt)),
		MaxBytes: int64(min(s.MaxBytes, math.MaxInt64)),
	}
}

// follow returns the file that a symbolic link names, there or not, so that the
// file is replaced and the link stays. What is no link is returned as it is.
func follow(path string) (string, error) {
	target, err := os.Readlink(path)
	if err != nil {
		return path, nil // it is no link, or nothing yet
	}
	if end, err := filepath.EvalSymlinks(path); !errors.Is(err, fs.ErrNotExist) {
		return end, err
	}
	// The target is not there. It may be a link itself: links that go round are
	// another error.
	if !filepath.IsAbs(target) {
		target = filepath.Dir(path) + string(filepath.Separator) + target
	}
	dir, name := filepath.Split(target)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", err
	}
	return follow(filepath.Join(dir, name))
}

// writable reports why a file could not be replaced.
func writable(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file", path)
	}
	// Not by the name that save uses: another process may be at it, which this one
	// takes over from.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// begin makes the file beside another one that is to replace it, which only the
// user can read. Its name is always the same, so that whoever is killed leaves one
// such file at most, and the next one takes its place.
func begin(path string) (*os.File, error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

// load reads the snapshot. It leaves the store nil if there is none to go on with.
func (m *memoryStore) load(o memstore.Options) {
	file := zap.String("file", m.snapshot)
	f, err := os.Open(m.snapshot)
	if errors.Is(err, fs.ErrNotExist) {
		m.log.Info("there is no snapshot yet: the store is empty", file)
		return
	}
	var loaded memstore.Loaded
	if err == nil {
		m.Store, loaded, err = memstore.Load(f, o)
		_ = f.Close() // it was only read
	}
	if err != nil {
		m.putAside(err)
		return
	}
	fields := []zap.Field{file, zap.Int("logs", loaded.Logs), zap.Int("expired", loaded.Expired)}
	if loaded.Dropped > 0 {
		m.log.Warn("not all of the snapshot fits: raise store.memory.max_keys or store.memory.max_bytes",
			append(fields, zap.Int("dropped", loaded.Dropped))...)
		return
	}
	m.log.Info("snapshot loaded", fields...)
}

// putAside renames a snapshot that cannot be used, so that the next one does not
// replace it.
func (m *memoryStore) putAside(reason error) {
	aside := m.snapshot + ".bad"
	if err := os.Rename(m.snapshot, aside); err != nil {
		m.log.Error("the snapshot is refused and the store is empty; the file could not be put aside, so no snapshot will be written: move it away and restart",
			zap.String("file", m.snapshot), zap.NamedError("reason", reason), zap.Error(err))
		m.snapshot = ""
		return
	}
	m.log.Error("the snapshot is refused and the store is empty: every limit starts anew; look at the file that was put aside, and delete it",
		zap.String("file", m.snapshot), zap.String("aside", aside), zap.NamedError("reason", reason))
}

// Close ends the store and writes its snapshot.
func (m *memoryStore) Close() error {
	err := m.Store.Close()
	if err != nil || m.snapshot == "" {
		return err
	}
	logs, err := m.save()
	if err != nil {
		return fmt.Errorf("store.memory.snapshot: %w", err)
	}
	m.log.Info("snapshot written", zap.String("file", m.snapshot), zap.Int("logs", logs))
	return nil
}

// save writes the snapshot to a new file, which then takes the name of the old
// one: whatever happens meanwhile, that name has a whole snapshot. It returns the
// number of logs.
func (m *memoryStore) save() (logs int, err error) {
	f, err := begin(m.snapshot)
	if err != nil {
		return 0, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	w := bufio.NewWriterSize(f, 1<<16)
	if logs, err = m.Save(w); err != nil {
		return 0, err
	}
	if err := w.Flush(); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	if err := f.Close(); err != nil {
		return 0, err
	}
	if err := os.Rename(f.Name(), m.snapshot); err != nil {
		return 0, err
	}
	return logs, syncDir(filepath.Dir(m.snapshot))
}

// syncDir makes a change of names in a directory last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
