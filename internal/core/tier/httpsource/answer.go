package httpsource

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/core/tier/strictjson"
)

// readAnswer reads the body of an answer. The subject is nil if the key is unknown. An
// error wraps [tier.ErrBadRecord].
func readAnswer(body []byte, overrides func([]byte) (map[string]tier.Override, error)) (*tier.Subject, error) {
	var p tier.Parts
	answered, known := false, false
	err := strictjson.Object(body, func(name string, value json.RawMessage) (err error) {
		isNull := string(value) == "null"
		switch name {
		case "subject":
			answered = true
			if !isNull {
				known = true
				p.ID, err = strictjson.Text(value)
			}
		case "tier":
			if !isNull {
				p.Tier, err = strictjson.Text(value)
			}
		case "disabled":
			p.Disabled = string(value) == "true"
			if !isNull && !p.Disabled && string(value) != "false" {
				err = errors.New("it is neither true nor false")
			}
		case "overrides":
			p.Overrides = value
		case "labels":
			p.Labels = value
		case "limits":
			p.Limits = value
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", tier.ErrBadRecord, err)
	case !answered:
		return nil, fmt.Errorf(`%w: there is no subject; {"subject":null} says that a key is unknown`, tier.ErrBadRecord)
	case !known:
		return nil, nil //nolint:nilnil // the key is unknown
	}
	return tier.NewSubject(p, overrides)
}

// maxAge returns how long the header allows to keep an answer; see [tier.Record].
func maxAge(h http.Header) time.Duration {
	const never = -time.Second
	age := time.Duration(math.MaxInt64)
	// If a comma is in quotes, the result can only be stricter.
	for directive := range strings.SplitSeq(strings.Join(h.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "no-store", "no-cache":
			return never
		case "max-age":
			n, ok := seconds(strings.Trim(strings.TrimSpace(value), `"`))
			if !ok {
				return never
			}
			age = min(age, n)
		}
	}
	if age == math.MaxInt64 {
		return 0
	}
	if n, ok := seconds(h.Get("Age")); ok {
		age -= n
	}
	if age <= 0 {
		return never
	}
	return age
}

// seconds parses digits. A number that is too large becomes 2^31 s (RFC 9111 §1.2.2).
func seconds(text string) (time.Duration, bool) {
	const most = 1 << 31
	if text == "" || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > most {
		n = most
	}
	return time.Duration(n) * time.Second, true
}
