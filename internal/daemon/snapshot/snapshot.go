package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// A Store is a memory store whose logs are in a file while no process runs. It is safe for
// concurrent use, except Close.
type Store struct {
	*memstore.Store
	file string // empty: Close writes no snapshot
	log  *zap.Logger
}

// Open returns a store with the logs of file. If there is no file, the store is empty. If Open
// cannot use the file, it renames the file, and the store is empty. Open returns an error if
// Close could not write the file. An empty name means no file. If ctx ends while Open reads the
// file, it returns the error of ctx, and the file stays as it is.
func Open(ctx context.Context, file string, o memstore.Options, log *zap.Logger) (*Store, error) {
	s := &Store{log: log}
	if file != "" {
		s.file = file
		err := files.CheckDirectory(file)
		if err == nil {
			err = writable(file)
		}
		if err != nil {
			return nil, err
		}
		s.load(ctx, o)
		if err := ctx.Err(); err != nil {
			if s.Store != nil {
				_ = s.Store.Close() // of the store in memory alone, which writes nothing
			}
			return nil, err
		}
	}
	if s.Store == nil {
		s.Store = memstore.New(o)
	}
	return s, nil
}

func writable(path string) error {
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a file, or a link to one; name the file itself", path)
	}
	// files.Replace uses another name: a process that is about to end may be writing under it.
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if cause := new(fs.PathError); errors.As(err, &cause) {
		// The temporary name would mislead the operator.
		return fmt.Errorf("cannot create a file in the directory %s: %w", filepath.Dir(path), cause.Err)
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// load reads the file. It leaves s.Store nil if there is no file, or no usable one.
func (s *Store) load(ctx context.Context, o memstore.Options) {
	file := zap.String("file", s.file)
	f, err := os.Open(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		s.log.Info("there is no snapshot yet, so the store is empty", file)
		return
	}
	var loaded memstore.Loaded
	if err == nil {
		s.Store, loaded, err = memstore.Load(&reader{ctx: ctx, file: f, log: s.log}, o)
		_ = f.Close() // it was only read
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		s.putAside(err)
		return
	}
	fields := []zap.Field{file, zap.Int("logs", loaded.Logs), zap.Int("expired", loaded.Expired)}
	if loaded.Dropped > 0 {
		s.log.Warn("not all of the snapshot fits; raise store.memory.max_bytes",
			append(fields, zap.Int("dropped", loaded.Dropped))...)
		return
	}
	s.log.Info("snapshot loaded", fields...)
}

// progress is how often the log says how much of a snapshot is read. Tests replace it.
var progress = 2 * time.Second

// A reader reads a file until ctx ends, and logs its progress.
type reader struct {
	ctx  context.Context
	file *os.File
	log  *zap.Logger

	began, logged time.Time
	read          int64
}

// Read implements [io.Reader].
func (r *reader) Read(b []byte) (n int, err error) {
	now := time.Now()
	switch {
	case r.ctx.Err() != nil:
		return 0, r.ctx.Err()
	case r.began.IsZero():
		r.began, r.logged = now, now
	case now.Sub(r.logged) >= progress:
		r.logged = now
		if info, err := r.file.Stat(); err == nil && info.Size() > 0 {
			r.log.Info("loading the snapshot: rls is not ready yet", zap.String("file", r.file.Name()),
				zap.Int64("percent", 100*r.read/info.Size()), zap.Duration("after", now.Sub(r.began)))
		}
	}
	n, err = r.file.Read(b)
	r.read += int64(n)
	return n, err
}

// putAside renames a file that cannot be used, so that Close does not replace it.
func (s *Store) putAside(reason error) {
	aside := s.file + ".bad"
	if err := os.Rename(s.file, aside); err != nil {
		s.log.Error("the snapshot is refused and the store is empty; rls could not rename the file, so it will write no snapshot; move the file away and restart",
			zap.String("file", s.file), zap.NamedError("reason", reason), zap.Error(err))
		s.file = ""
		return
	}
	s.log.Error("the snapshot is refused and the store is empty, so every limit starts anew; rls renamed the file: look at it, and delete it",
		zap.String("file", s.file), zap.String("aside", aside), zap.NamedError("reason", reason))
}

// Close closes the store and writes its logs to the file.
func (s *Store) Close() error {
	if err := s.Store.Close(); err != nil || s.file == "" {
		return err
	}
	logs := 0
	err := files.Replace(s.file, func(w io.Writer) (err error) {
		logs, err = s.Save(w)
		return err
	})
	if err == nil {
		s.log.Info("snapshot written", zap.String("file", s.file), zap.Int("logs", logs))
	}
	return err
}
