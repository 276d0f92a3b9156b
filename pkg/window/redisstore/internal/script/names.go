package script

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/pkg/window"
)

// KeyName returns the name in Redis of a log, as [Options.Prefix] begins it.
func KeyName(prefix string, id window.LogID) string { return string(AppendKey(nil, prefix, id)) }

// policyLetters are what the last part of a log's name begins with. The name of a sliding log
// has no letter.
var policyLetters = [...]string{
	window.Sliding: "", window.TokenBucket: "b", window.Fixed: "f", window.Calendar: "c",
	window.SlidingCounter: "w", window.InFlight: "h",
}

// AppendKey appends the name of a log's key.
func AppendKey(b []byte, prefix string, id window.LogID) []byte {
	b = append(b, prefix...)
	b = append(b, id.Key...)
	b = append(b, ':')
	b = append(b, policyLetters[id.Policy]...)
	if id.Policy == window.InFlight {
		return b // another hold time keeps the log
	}
	return strconv.AppendInt(b, id.Window.Microseconds(), 10)
}

// appendOnceRecord appends to the name of a log what names the idempotency record of a charge. [ParseKeyName] does
// not take the name for that of a log.
func appendOnceRecord(b []byte, id uint64) []byte { return fmt.Appendf(b, ":o%016x", id) }

// HoldsSuffix is what the name of what is reserved of a log has behind the name of the log. [ParseKeyName] does not take
// it for that of a log.
const HoldsSuffix = ":r"

// ParseKeyName is the reverse of [KeyName] with an empty prefix. It returns false if name is
// not the name of a log.
func ParseKeyName(name string) (id window.LogID, ok bool) {
	i := strings.LastIndexByte(name, ':')
	if i < 1 {
		return window.LogID{}, false
	}
	id.Key = name[:i]
	text := name[i+1:]
	for p, letter := range policyLetters {
		if digits, found := strings.CutPrefix(text, letter); found && letter != "" {
			id.Policy, text = window.Policy(p), digits
		}
	}
	if id.Policy == window.InFlight {
		return id, text == ""
	}
	if text == "" || text[0] < '0' || text[0] > '9' {
		return window.LogID{}, false
	}
	micros, err := strconv.ParseInt(text, 10, 64)
	if err != nil || micros <= 0 || micros > MaxMicros {
		return window.LogID{}, false
	}
	id.Window = time.Duration(micros) * time.Microsecond
	return id, true
}
