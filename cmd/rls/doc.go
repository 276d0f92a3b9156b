// Command rls is the rate-limit service for Envoy, and its commands for operators. Each command has
// a file with its flags, help, output and exit code: serve, validate, test, diff, replay, explain,
// usage, top, denials, reset, digest, env, envoy-config, healthcheck, version. It also has what
// commands share: loading of rules and settings, addresses and tokens of admin ports, and the
// terminal. "rls --help" lists the commands, and docs/ describes them.
package main
