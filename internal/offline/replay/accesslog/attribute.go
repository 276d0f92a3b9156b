package accesslog

import (
	"cmp"
	"fmt"
	"strings"
)

// An Attribute is one property of a request: an operator of Envoy's access log formats without its
// percent signs. Names of headers are lower-case.
type Attribute string

// The attributes without an argument that more than one package needs.
const (
	StartTime Attribute = "START_TIME"
	EmitTime  Attribute = "EMIT_TIME" // when the line was written, at the end of the request
	Duration  Attribute = "DURATION"  // of the request, in milliseconds
	Method    Attribute = "REQ(:method)"
	Path      Attribute = "REQ(:path)" // with the query string
	PathOnly  Attribute = "PATH(NQ)"   // without it
	Protocol  Attribute = "PROTOCOL"
	Authority Attribute = "REQ(:authority)"
	Client    Attribute = "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT"
	LocalPort Attribute = "DOWNSTREAM_LOCAL_PORT" // of the listener
	Peer      Attribute = "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT"
	Status    Attribute = "RESPONSE_CODE"
	Flags     Attribute = "RESPONSE_FLAGS"
	Details   Attribute = "RESPONSE_CODE_DETAILS"
	RouteName Attribute = "ROUTE_NAME"
	Cluster   Attribute = "UPSTREAM_CLUSTER"
	Subject   Attribute = "DYNAMIC_METADATA(envoy.filters.http.ratelimit:subject)"
	KeyDigest Attribute = "DYNAMIC_METADATA(envoy.filters.http.ratelimit:key_digest)"
	Reason    Attribute = "DYNAMIC_METADATA(envoy.filters.http.ext_authz:reason)"
)

// OriginalOrPath is the path that a rate limit sees, before Envoy rewrites it.
const OriginalOrPath Attribute = "REQ(x-envoy-original-path?:path)"

// Header returns the attribute of a request header.
func Header(name string) Attribute { return Attribute("REQ(" + strings.ToLower(name) + ")") }

// Metadata returns the attribute of dynamic metadata, below a namespace.
func Metadata(namespace string, path ...string) Attribute {
	return Attribute("DYNAMIC_METADATA(" + strings.Join(append([]string{namespace}, path...), ":") + ")")
}

// String returns the operator as a log format has it, with its percent signs.
func (a Attribute) String() string { return "%" + string(a) + "%" }

// Attributes that Envoy has no operators for, and that a mapping of fields may name.
const (
	Seconds     Attribute = "DURATION(s)"  // [Duration] in seconds, as nginx and Caddy write it
	inMicros    Attribute = "DURATION(us)" // in microseconds, as Apache's %D
	inNanos     Attribute = "DURATION(ns)"
	RequestLine Attribute = "REQUEST_LINE" // such as GET /search?q=a HTTP/1.1
)

// The paths as Envoy's operators give them. Limits apply before Envoy rewrites the path, so the
// original path is the one that [Path] and [PathOnly] mean.
const (
	originalPath       Attribute = "REQ(x-envoy-original-path)"
	rewrittenPathOnly  Attribute = "PATH(NQ:PATH)"
	originalPathOnly   Attribute = "PATH(NQ:ORIG)"
	startTimeLocal     Attribute = "START_TIME_LOCAL"
	emitTimeLocal      Attribute = "EMIT_TIME_LOCAL"
	clientWithPort     Attribute = "DOWNSTREAM_REMOTE_ADDRESS"
	peerWithPort       Attribute = "DOWNSTREAM_DIRECT_REMOTE_ADDRESS"
	localWithPort      Attribute = "DOWNSTREAM_LOCAL_ADDRESS"
	maxOperatorLength            = 1 << 10
	maxOperatorsOfText           = 256
)

// CutOperator cuts a log format around its first operator, which it returns without percent signs.
// Two percent signs in the text before are one in before. An argument in parentheses can have
// percent signs and parentheses. operator is empty if there is none, and ok is false if the operator
// has no end.
func CutOperator(format string) (before, operator, rest string, ok bool) {
	for {
		text, after, found := strings.Cut(format, "%")
		before += text
		if !found {
			return before, "", "", true
		}
		if !strings.HasPrefix(after, "%") {
			length := operatorLength(after)
			if length < 0 {
				return before, "", "", false
			}
			return before, after[:length], after[length+1:], true
		}
		before, format = before+"%", after[1:]
	}
}

// operatorLength returns the length of the operator at the start of a text, or -1.
func operatorLength(text string) int {
	depth := 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth = max(0, depth-1)
		case '%':
			if depth == 0 {
				return i
			}
		}
	}
	return -1
}

// Parse returns the attribute of an operator, with or without its percent signs. Operators that
// mean the same give the same attribute: %REQUEST_HEADER(X-Tenant)% is REQ(x-tenant), and
// %PATH(WQ:PATH)% is REQ(:path).
func Parse(operator string) (Attribute, error) {
	inner := operator
	if len(operator) > 1 && operator[0] == '%' && operator[len(operator)-1] == '%' {
		inner = operator[1 : len(operator)-1]
	}
	if len(inner) > maxOperatorLength {
		return "", fmt.Errorf("an operator has %d bytes; at most %d are read", len(inner), maxOperatorLength)
	}
	name, rest, hasArgument := strings.Cut(inner, "(")
	argument, after := rest, ""
	if hasArgument {
		end := strings.LastIndexByte(rest, ')')
		if end < 0 {
			return "", fmt.Errorf("the operator %q lacks its closing parenthesis", operator)
		}
		argument, after = rest[:end], rest[end+1:]
	}
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return "", fmt.Errorf("%q is no operator of Envoy's access logs, such as %%REQ(:METHOD)%%", operator)
	}
	if after != "" && after[0] != ':' {
		return "", fmt.Errorf("the operator %q goes on behind its closing parenthesis", operator)
	}
	return canonical(name, argument, after, hasArgument), nil
}

// canonical returns the one attribute of all operators that mean the same. after is the truncation,
// such as :10. A truncated value is another attribute.
func canonical(name, argument, after string, hasArgument bool) Attribute {
	switch name {
	case "REQ", "REQUEST_HEADER":
		return Attribute("REQ(" + strings.ToLower(argument) + ")" + after)
	case "RESP", "RESPONSE_HEADER":
		return Attribute("RESP(" + strings.ToLower(argument) + ")" + after)
	case "REQ_WITHOUT_QUERY":
		header := strings.ToLower(argument)
		paths := map[Attribute]Attribute{OriginalOrPath: PathOnly, Path: rewrittenPathOnly, originalPath: originalPathOnly}
		return cmp.Or(paths[Attribute("REQ("+header+")")], Attribute("REQ_WITHOUT_QUERY("+header+")")) + Attribute(after)
	case "PATH":
		form, from, _ := strings.Cut(argument, ":")
		return pathOperator(form, from) + Attribute(after)
	case "METADATA":
		if rest, ok := strings.CutPrefix(argument, "DYNAMIC:"); ok {
			return Attribute("DYNAMIC_METADATA(" + rest + ")" + after)
		}
	case "RESPONSE_CODE_DETAILS":
		return Details + Attribute(after)
	}
	if !hasArgument || (argument == "" && after == "") {
		return Attribute(name)
	}
	return Attribute(name + "(" + argument + ")" + after)
}

// pathOperator returns the attribute of PATH(form:from).
func pathOperator(form, from string) Attribute {
	switch from = cmp.Or(from, "ORIG_OR_PATH"); {
	case form == "NQ" && from == "ORIG_OR_PATH":
		return PathOnly
	case form == "NQ":
		return Attribute("PATH(NQ:" + from + ")")
	case from == "ORIG_OR_PATH":
		return OriginalOrPath
	case from == "ORIG":
		return originalPath
	default:
		return Path
	}
}
