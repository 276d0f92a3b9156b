//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// kernelSettings are what the kubelet and kube-proxy change, beyond their namespaces.
var kernelSettings = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// savedSettings is the file with the settings from before the first of the nodes that run. Each node
// holds a shared lock on it. Every user can write in /tmp, so a file of another user is refused.
const savedSettings = "/tmp/slidegate-node-settings"

// saveSettings returns a function that restores the kernel settings as they were before the first
// node. The function of the last node restores them; the others leave them.
func saveSettings() (restore func() error, err error) {
	file, err := os.OpenFile(savedSettings, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := isOurs(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	fd := int(file.Fd())
	// With no other node, the file is empty, or a node was killed and has left it.
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		if err := writeSettings(file); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if err := syscall.Flock(fd, syscall.LOCK_SH); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return file.Close()
		}
		if err == nil {
			err = restoreSettings(file)
		}
		return errors.Join(err, file.Close())
	}, nil
}

// isOurs returns an error if another user could have written the file: root would write what it says
// into the kernel.
func isOurs(file *os.File) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || int(stat.Uid) != os.Geteuid() || stat.Nlink != 1 {
		return fmt.Errorf("%s: it is not a file of this program: remove it", file.Name())
	}
	return nil
}

// writeSettings writes the present settings to the file, unless it has some.
func writeSettings(file *os.File) error {
	if info, err := file.Stat(); err != nil || info.Size() > 0 {
		return err
	}
	values := make(map[string]string)
	for _, name := range kernelSettings {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return err
		}
		values[name] = string(value)
	}
	return json.NewEncoder(file).Encode(values)
}

// restoreSettings restores the settings in the file, and empties it.
func restoreSettings(file *os.File) error {
	if _, err := file.Seek(0, 0); err != nil {
		return err
	}
	var values map[string]string
	if err := json.NewDecoder(file).Decode(&values); err != nil {
		return fmt.Errorf("%s: %w: the kernel settings stay as Kubernetes has set them", savedSettings, err)
	}
	var errs error
	// Only these names, whatever the file has.
	for _, name := range kernelSettings {
		value, ok := values[name]
		if !ok {
			continue
		}
		path := filepath.Join("/proc/sys", name)
		if now, err := os.ReadFile(path); err != nil || string(now) != value {
			errs = errors.Join(errs, err, os.WriteFile(path, []byte(value), 0o644))
		}
	}
	return errors.Join(errs, file.Truncate(0))
}
