package transport

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// conformanceConfig lists the features of our servers. They select every unary case of
// gRPC without compression. With client certificates the suite has only streaming cases, so
// TestInteroperability covers them.
const conformanceConfig = `features:
  versions: [HTTP_VERSION_2]
  protocols: [PROTOCOL_GRPC]
  codecs: [CODEC_PROTO]
  compressions: [COMPRESSION_IDENTITY]
  stream_types: [STREAM_TYPE_UNARY]
  supports_h2c: true
  supports_tls: true
  supports_message_receive_limit: true
`

// TestConformance runs the unary part of the Connect project's suite, with its
// reference client and with grpc-go's, over plain text and TLS.
func TestConformance(t *testing.T) {
	suite := goOutput(t, "tool", "-n", "connectconformance")
	protos := filepath.Join(goOutput(t, "list", "-m", "-f", "{{.Dir}}", "connectrpc.com/conformance"), "proto")
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte(conformanceConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := []string{"--mode", "server", "--conf", config, "-v"}
			for pattern := range conformanceExceptions[name] {
				// The suite itself fails if one of these passes.
				args = append(args, "--known-failing", pattern)
			}
			cmd := exec.CommandContext(t.Context(), suite, append(args, "--", self)...)
			cmd.Env = append(os.Environ(), envReference+"="+name, envProtos+"="+protos)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("the suite: %v", err)
			}
			t.Logf("%s", out)
		})
	}
}

// goOutput returns the output of a go command.
func goOutput(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "go", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(out))
}
