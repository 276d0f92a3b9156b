//go:build linux

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

const (
	cas = "/etc/ssl/certs/ca-certificates.crt"
	// module is the folder of this module: node runs from it.
	module = "github.com/slidegate/slidegate"
)

// options are binaries for images that not every run needs.
type options struct {
	envoy, gateway, reference, kgateway string
}

// An image is a stand-in for an image of a registry.
type image struct {
	names      []string
	files      map[string]string // the path in the image to the file on this machine
	dirs       []string          // folders that every user may write to
	user       string
	entrypoint []string
	command    []string
}

// writeImages makes the images, an archive for each in dir.
func writeImages(ctx context.Context, dir string, o options) error {
	built := filepath.Join(dir, "programs")
	if err := os.MkdirAll(built, 0o755); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w -X main.version=0.0.0-node", "-o", built,
		module+"/cmd/rls", module+"/test/upstream", module+"/test/kubernetes/node/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building the programs of the images: %w\n%s", err, out)
	}
	program := func(name string) string { return filepath.Join(built, name) }

	// As in the Dockerfile. The second name is for upgrades.
	service := map[string]string{"/rls": program("rls"), "/bin/ratelimit": program("rls"), cas: cas}
	images := []image{
		{names: []string{"registry.k8s.io/pause:3.6"}, files: map[string]string{"/pause": program("pause")}, entrypoint: []string{"/pause"}},
		{names: []string{"docker.io/slidegate/rls:0.1.0", "docker.io/slidegate/rls:next"}, files: service, user: "65532:65532", entrypoint: []string{"/rls"}},
		{names: []string{"docker.io/slidegate/ratelimit:0.1.0"}, files: service, user: "65532:65532", entrypoint: []string{"/bin/ratelimit"}},
		{names: []string{"docker.io/slidegate/upstream:dev"}, files: map[string]string{"/upstream": program("upstream")}, user: "65532:65532", entrypoint: []string{"/upstream"}},
		{
			names: []string{"docker.io/library/redis:7"}, dirs: []string{"/data"}, command: []string{"redis-server"},
			files: map[string]string{"/usr/local/bin/redis-server": "redis-server", "/usr/local/bin/redis-cli": "redis-cli"},
		},
	}
	if o.envoy != "" {
		images = append(images, image{
			names: []string{"docker.io/envoyproxy/envoy:v1.40.0"},
			// The original is an Ubuntu: it has a shell for hooks.
			files:   map[string]string{"/usr/local/bin/envoy": o.envoy, "/usr/bin/bash": "bash"},
			command: []string{"envoy", "-c", "/etc/envoy/envoy.yaml"},
		})
	}
	if o.gateway != "" {
		images = append(images, image{
			names: []string{"docker.io/envoyproxy/gateway:v1.9.1"}, files: map[string]string{"/usr/local/bin/envoy-gateway": o.gateway, cas: cas},
			dirs: []string{"/var/lib/eg", "/certs"}, user: "65532:65532", entrypoint: []string{"/usr/local/bin/envoy-gateway"},
		})
	}
	if o.reference != "" {
		images = append(images, image{
			names: []string{"docker.io/envoyproxy/ratelimit:reference"}, files: map[string]string{"/bin/ratelimit": o.reference, cas: cas},
		})
	}
	if o.kgateway != "" {
		const registry = "cr.kgateway.dev/kgateway-dev/"
		images = append(images, image{
			names: []string{registry + "kgateway:v2.2.0"}, files: map[string]string{"/usr/local/bin/kgateway": filepath.Join(o.kgateway, "kgateway"), cas: cas},
			entrypoint: []string{"/usr/local/bin/kgateway"},
		}, image{
			names: []string{registry + "envoy-wrapper:v2.2.0"}, entrypoint: []string{"/usr/local/bin/envoyinit"},
			files: map[string]string{"/usr/local/bin/envoy": o.envoy, "/usr/local/bin/envoyinit": filepath.Join(o.kgateway, "envoyinit"), cas: cas},
		})
	}
	for i, m := range images {
		if err := m.write(filepath.Join(dir, fmt.Sprint(i, ".tar"))); err != nil {
			return fmt.Errorf("making the image %s: %w", m.names[0], err)
		}
	}
	return nil
}

// write makes an archive of one layer, as "docker save" does.
func (m image) write(path string) error {
	layer, err := m.layer()
	if err != nil {
		return err
	}
	type object map[string]any
	config, err := json.Marshal(object{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": object{
			"User": m.user, "Entrypoint": m.entrypoint, "Cmd": m.command,
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SSL_CERT_FILE=" + cas},
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + digest(layer)}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]object{{"Config": digest(config) + ".json", "RepoTags": m.names, "Layers": []string{digest(layer) + ".tar"}}})
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, f := range []struct {
		name string
		data []byte
	}{{digest(config) + ".json", config}, {digest(layer) + ".tar", layer}, {"manifest.json", manifest}} {
		if err := add(w, f.name, f.data, 0o644); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, archive.Bytes(), 0o644)
}

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func add(w *tar.Writer, name string, data []byte, mode int64) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := w.Write(data)
	return err
}

// layer returns the files of the image with the shared libraries that they need.
func (m image) layer() ([]byte, error) {
	files := make(map[string]string)
	for target, source := range m.files {
		path := source
		if !filepath.IsAbs(source) {
			var err error
			if path, err = exec.LookPath(source); err != nil {
				return nil, err
			}
		}
		path, err := filepath.EvalSymlinks(path)
		if err != nil {
			return nil, err
		}
		files[target] = path
		libraries, err := librariesOf(path)
		if err != nil {
			return nil, err
		}
		for _, l := range libraries {
			files[l] = l
		}
	}
	targets := make([]string, 0, len(files))
	for target := range files {
		targets = append(targets, target)
	}
	slices.Sort(targets)
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	for _, dir := range append([]string{"/tmp"}, m.dirs...) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(dir, "/") + "/", Mode: 0o1777}); err != nil {
			return nil, err
		}
	}
	for _, target := range targets {
		data, err := os.ReadFile(files[target])
		if err != nil {
			return nil, err
		}
		if err := add(w, strings.TrimPrefix(target, "/"), data, 0o755); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return layer.Bytes(), nil
}

// library finds the paths in what ldd prints.
var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// librariesOf returns the shared libraries of a program, and none for a static one or for data.
func librariesOf(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil || string(magic) != "\x7fELF" {
		return nil, nil //nolint:nilerr // a short file is data
	}
	out, err := exec.Command("ldd", path).CombinedOutput()
	if err != nil {
		if strings.Contains(string(out), "not a dynamic executable") {
			return nil, nil
		}
		return nil, fmt.Errorf("ldd %s: %w: %s", path, err, out)
	}
	var paths []string
	for _, match := range library.FindAllStringSubmatch(string(out), -1) {
		paths = append(paths, match[1])
	}
	return paths, nil
}
