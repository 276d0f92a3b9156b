package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPage types the commands of docs/kubernetes.md, section by section, in a copy of the folders
// that they name. Those of Envoy Gateway need its own images: TestEnvoyGateway installs it.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"deploy", "envoy"} {
		if err := os.CopyFS(filepath.Join(dir, name), os.DirFS("../../"+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, program := range map[string]string{"helm": os.Getenv(envHelm), "rls": filepath.Join(os.Getenv("NODE_IMAGES"), "programs", "rls")} {
		if err := os.Symlink(program, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	mine := regexp.MustCompile("(?s)```yaml\n# my/slidegate/kustomization.yaml.*?```").FindString(string(page))
	rules, err := os.ReadFile("../../deploy/kubernetes/shared/rules/rules.yaml")
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, "my", "slidegate"), 0o755)
	}
	for name, text := range map[string]string{"kustomization.yaml": strings.Trim(mine, "`yaml"), "rules.yaml": string(rules)} {
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "my", "slidegate", name), []byte(text), 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	const start = "kubectl create namespace slidegate; kubectl apply -n slidegate -k deploy/kubernetes/try\n" +
		"kubectl wait -n slidegate --for=condition=Available deployment --all --timeout=3m\n"
	// Each pod gets requests, so that there is something to see.
	const ask = "kubectl port-forward -n slidegate service/envoy 10000\nfor i in $(seq 30); do curl -s localhost:10000/; done\n"
	const counts = "    100 200\n      1 429\n"
	for _, tc := range []struct{ section, before, after, want string }{
		{section: "# Kubernetes", want: counts},
		{section: "## Shared service"},
		{section: "## Redis"},
		{section: "## Sidecar", want: counts},
		{section: "## Helm", after: loop(string(page)), want: counts},
		{section: "## What do I watch?", before: start + ask, want: "nodes decide"},
		{section: "## How do I change rules, upgrade and go back?", before: start},
	} {
		t.Run(strings.Trim(tc.section, "# ?"), func(t *testing.T) {
			script := background(tc.before + commands(string(page), tc.section) + tc.after)
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+script)
			// rls refuses variables that it does not know.
			cmd.Dir, cmd.Env = dir, append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SLIDEGATE_") }),
				"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			t.Logf("%s\n%s", script, out)
			if err != nil || !strings.Contains(string(out), tc.want) {
				t.Errorf("%v; want %q", err, tc.want)
			}
			for _, name := range []string{"slidegate", "app", "limits"} {
				if out, err := exec.Command("kubectl", "delete", "namespace", name, "--ignore-not-found", "--timeout=180s").CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
		})
	}
}

// commands returns the commands of a section.
func commands(page, section string) string {
	_, text, _ := strings.Cut(page, section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	var all strings.Builder
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		all.WriteString(block[1])
	}
	return strings.ReplaceAll(all.String(), "rls:VERSION", "rls:next")
}

// background returns a script whose forwarded ports are in the background, because on the page each has
// a terminal of its own. The script goes on when the last port of the line is open.
func background(script string) string {
	const open = `timeout 60 bash -c 'until (exec 3<>/dev/tcp/127.0.0.1/$2) 2>/dev/null; do sleep 0.1; done'`
	return regexp.MustCompile(`(?m)^(kubectl port-forward .* (\d+))$`).ReplaceAllString(script, "$1 >/dev/null &\n"+open)
}

// loop returns the lines that wait for the application and ask until a request is denied.
func loop(page string) string {
	return regexp.MustCompile(`(?m)^curl .*--retry .*\nfor i in .*\n`).FindString(page)
}
