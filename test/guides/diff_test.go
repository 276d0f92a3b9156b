package guides

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/slidegate/slidegate/test/edge"
	"github.com/slidegate/slidegate/test/tree"
)

// TestWorkflowOfDiff runs the steps of the workflow in docs/examples as they stand, as GitHub does: in a
// clone of a repository whose branch has one commit more than main. In place of GitHub's gh a
// program notes what it is called with.
func TestWorkflowOfDiff(t *testing.T) {
	var workflow struct {
		Jobs map[string]struct {
			Steps []struct {
				Run string
				Env map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(tree.Read(t, "docs/examples/diff-workflow.yaml")), &workflow); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin, repository := filepath.Join(dir, "bin"), filepath.Join(dir, "work", "repository")
	rls, err := edge.RLSOptions{}.Command(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(bin, 0o700), os.MkdirAll(filepath.Dir(repository), 0o700), os.Symlink(rls.Path, filepath.Join(bin, "rls"))); err != nil {
		t.Fatal(err)
	}
	gh := "#!/bin/sh\necho \"$@\" > \"$NOTES/arguments\"\nwhile [ \"$1\" != --body-file ]; do shift; done\ncp \"$2\" \"$NOTES/body\"\n"
	if err := os.WriteFile(filepath.Join(bin, "gh"), []byte(gh), 0o700); err != nil {
		t.Fatal(err)
	}
	env := append(edge.UserEnviron(), "PATH="+bin+":"+os.Getenv("PATH"), "NOTES="+dir, "GITHUB_BASE_REF=main", "HOME="+dir,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	sh := func(where, script string, more ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", script)
		cmd.Dir, cmd.Env = where, append(env, more...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
	}
	rules := func(requests string) string {
		return "mkdir -p rules\ncat > rules/rules.yaml <<'END'\ndomain: edge\ndescriptors: [{key: api_key, rate_limit: {name: per-key, window: 1m, requests: " + requests + "}}]\nEND\n" +
			"echo '{tiers: [free], default: free}' > tiers.yaml\ngit add rules tiers.yaml\ngit commit -qm change\n"
	}
	sh(dir, "git init -q -b main origin\ncd origin\n"+rules("100")+"git checkout -q -b change\n"+rules("50"))
	sh(dir, "git clone -q -b change origin work/repository")
	ran := 0
	for _, job := range workflow.Jobs {
		for _, step := range job.Steps {
			if step.Run == "" {
				continue
			}
			ran++
			var variables []string
			for name := range step.Env {
				variables = append(variables, name+"="+map[string]string{"NUMBER": "17"}[name])
			}
			sh(repository, step.Run, variables...)
		}
	}
	arguments, err := os.ReadFile(filepath.Join(dir, "arguments"))
	if err != nil || ran == 0 || !strings.HasPrefix(string(arguments), "pr comment 17 --body-file ") {
		t.Errorf("%d steps ran, gh was called with %q, %v", ran, arguments, err)
	}
	body, err := os.ReadFile(filepath.Join(dir, "body"))
	if err != nil || !strings.HasPrefix(string(body), "    ../base/rules → rules: stricter\n") || !strings.Contains(string(body), "\n    changed per-key ") {
		t.Errorf("the comment is %s, %v", body, err)
	}
}
