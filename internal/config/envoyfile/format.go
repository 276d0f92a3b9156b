package envoyfile

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/replay/accesslog"
)

// Parse reads a format of Envoy's access logs: text with operators in percent signs. %% is one
// percent sign. An error is a sentence that says what is wrong.
func Parse(format string) ([]Part, error) {
	var parts []Part
	text := func(s string) {
		if n := len(parts); n > 0 && parts[n-1].Attribute == "" {
			parts[n-1].Text += s
		} else if s != "" {
			parts = append(parts, Part{Text: s})
		}
	}
	for rest := format; rest != ""; {
		before, after, found := strings.Cut(rest, "%")
		text(before)
		if !found {
			break
		}
		if strings.HasPrefix(after, "%") {
			text("%")
			rest = after[1:]
			continue
		}
		length := operatorLength(after)
		if length < 0 {
			return nil, fmt.Errorf("%s has an operator without its closing percent sign; write %%%% for a percent sign", strict.Quote(format))
		}
		part, err := operator(after[:length])
		if err != nil {
			return nil, err
		}
		parts = append(parts, part)
		rest = after[length+1:]
	}
	return parts, nil
}

// operatorLength returns the length of the operator at the start of a text, or -1. Its argument
// may have percent signs and brackets.
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

// operator reads an operator without its percent signs.
func operator(text string) (Part, error) {
	name, rest, hasArgument := strings.Cut(text, "(")
	length := ""
	argument := ""
	if hasArgument {
		end := strings.LastIndexByte(rest, ')')
		if end < 0 {
			return Part{}, fmt.Errorf("the operator %s has no closing bracket", strict.Quote(text))
		}
		argument, length = rest[:end], rest[end+1:]
	} else if i := strings.IndexByte(name, ':'); i >= 0 {
		name, length = name[:i], name[i:]
	}
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789") != "" {
		return Part{}, fmt.Errorf("%s is not an operator of Envoy's access logs, such as %%REQ(x-api-key)%%", strict.Quote(text))
	}
	p := Part{Attribute: accesslog.Attribute(name)}
	if hasArgument {
		switch name {
		case "REQ", "RESP", "TRAILER":
			argument = strings.ToLower(argument)
		}
		p.Attribute += accesslog.Attribute("(" + argument + ")")
	}
	if length != "" {
		n, err := strconv.ParseUint(strings.TrimPrefix(length, ":"), 10, 31)
		if err != nil || length[0] != ':' || n == 0 {
			return Part{}, fmt.Errorf("the operator %s has an invalid length: write it like %%REQ(x-tenant):20%%", strict.Quote(text))
		}
		p.Most = int(n)
	}
	return p, nil
}
