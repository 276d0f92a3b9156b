package compat

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// The names that make a process a drop-in.
const (
	// Command is the name of the program of envoyproxy/ratelimit.
	Command = "ratelimit"
	// Reference is the value of SLIDEGATE_COMPAT.
	Reference = "envoyproxy"
)

const environment = "environment"

// Mode reports whether a process that was started as argv0 is a drop-in for envoyproxy/ratelimit. The
// problem is nil, or says what is wrong with SLIDEGATE_COMPAT.
func Mode(argv0 string, environ []string) (dropIn bool, problem *strict.Problem) {
	dropIn = filepath.Base(argv0) == Command
	switch value, _ := lookup(environ, settings.EnvCompat); value {
	case "":
	case Reference:
		dropIn = true
	default:
		problem = &strict.Problem{File: environment, Path: settings.EnvCompat, Message: strict.NotOneOf(value, []string{Reference})}
	}
	return dropIn, problem
}

// signs are variables that only a deployment of envoyproxy/ratelimit sets.
var signs = []string{
	"RUNTIME_ROOT", "RUNTIME_SUBDIRECTORY", "CONFIG_TYPE", "REDIS_URL", "BACKEND_TYPE",
	"RUNTIME_APPDIRECTORY", "RUNTIME_WATCH_ROOT", "RUNTIME_IGNOREDOTFILES", "CONFIG_GRPC_XDS_NODE_ID", "CONFIG_GRPC_XDS_SERVER_URL",
	"REDIS_SOCKET_TYPE", "REDIS_TYPE", "MEMCACHE_HOST_PORT", "USE_STATSD", "LIMIT_RESPONSE_HEADERS_ENABLED",
}

// Mistaken returns what is wrong if a process that is no drop-in has no rules, but
// variables of envoyproxy/ratelimit. It would serve the built-in example. The problem is nil if the
// environment has none of these variables.
func Mistaken(environ []string) *strict.Problem {
	var found []string
	for _, name := range signs {
		if _, ok := lookup(environ, name); ok {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &strict.Problem{File: environment, Path: strings.Join(found, ", "), Message: fmt.Sprintf(
		"rls does not read variables of envoyproxy/ratelimit, and there are no rules: rules.path is not set. "+
			"To replace envoyproxy/ratelimit, start rls as %s (/bin/%s in the image) or set %s=%s. "+
			"For other rules set %sRULES_PATH. To see the built-in example, unset these variables",
		Command, Command, settings.EnvCompat, Reference, settings.EnvPrefix)}
}

// CheckExample returns what is wrong if a drop-in would serve the built-in rules or tiers. They
// are an example, which must not replace the limits of envoyproxy/ratelimit.
func CheckExample(s *settings.Settings) (problems strict.Problems) {
	const message = "a drop-in for envoyproxy/ratelimit does not serve the built-in example: name a file"
	if s.Rules.Source == settings.RulesFiles && s.Rules.Path == "" {
		problems = append(problems, strict.Problem{Path: "rules.path", Message: message})
	}
	if s.Tiers.Source == settings.TiersFile && s.Tiers.Path == "" {
		problems = append(problems, strict.Problem{Path: "tiers.path", Message: message})
	}
	return problems
}

// lookup returns the value of a variable. The first of two counts, as for package os.
func lookup(environ []string, name string) (value string, ok bool) {
	for _, v := range environ {
		if rest, ok := strings.CutPrefix(v, name); ok && strings.HasPrefix(rest, "=") {
			return rest[1:], true
		}
	}
	return "", false
}
