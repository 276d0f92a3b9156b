package envoyfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/offline/replay/accesslog"
)

// Parse reads a format of Envoy's access logs: text with operators in percent signs. %% is one
// percent sign. An error is a sentence that says what is wrong.
func Parse(format string) (parts []Part, err error) {
	for {
		before, text, rest, ok := accesslog.CutOperator(format)
		if !ok {
			return nil, errors.New("a percent sign opens an operator that no other one closes; write %% for a percent sign")
		}
		if before != "" {
			parts = append(parts, Part{Text: before})
		}
		if text == "" {
			return parts, nil
		}
		part, err := operator(text)
		if err != nil {
			return nil, err
		}
		parts, format = append(parts, part), rest
	}
}

// operator reads an operator without its percent signs.
func operator(text string) (p Part, err error) {
	name, length := text, ""
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, ')') {
		name, length = text[:i], text[i+1:]
		n, err := strconv.ParseUint(length, 10, 31)
		if err != nil || n == 0 {
			return p, fmt.Errorf("the operator %s has an invalid length: write it like %%REQ(x-tenant):20%%", strict.Quote(text))
		}
		p.Most = int(n)
	}
	p.Attribute, err = accesslog.Parse(name)
	return p, err
}
