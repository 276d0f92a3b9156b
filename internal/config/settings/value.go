package settings

import (
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// A Secret is a text that is never printed. Every verb of fmt and every encoder shows "***"
// for it, or nothing if it is empty. [Secret.Reveal] returns the text.
type Secret string

// Reveal returns the secret itself, or nil if it is empty.
func (s Secret) Reveal() []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}

// String hides the secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return strict.Hidden
}

// Format hides the secret from every verb. Without it, fmt prints the text for a verb that is
// wrong for texts.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(s.String())) }

// MarshalText hides the secret.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// FileMode is the permission bits of a file. As text it is octal with a leading
// zero.
type FileMode fs.FileMode

// String returns four octal digits.
func (m FileMode) String() string { return fmt.Sprintf("%04o", uint32(m)) }

// UnmarshalText reads octal digits that begin with 0. So it refuses a mode that a tool turned
// into a decimal number.
func (m *FileMode) UnmarshalText(text []byte) error {
	digits := strings.TrimPrefix(string(text), "0o")
	bits, err := strconv.ParseUint(digits, 8, 32)
	if err != nil || text[0] != '0' || bits > 0o777 {
		return fmt.Errorf("%s is not a file mode: write it in octal with a leading 0, such as 0660", strict.Quote(string(text)))
	}
	*m = FileMode(bits)
	return nil
}

// A Ratio is a number from 0 to 1. As text it is a percentage, or a decimal fraction.
type Ratio float64

// String returns a percentage.
func (r Ratio) String() string { return strconv.FormatFloat(100*float64(r), 'g', 6, 64) + "%" }

// MarshalText returns a percentage.
func (r Ratio) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads 80% or 0.8.
func (r *Ratio) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	f, err := strconv.ParseFloat(number, 64)
	if percent {
		f /= 100
	}
	if err != nil || !(f >= 0 && f <= 1) {
		return fmt.Errorf("%s is neither a percentage such as 80%% nor a fraction such as 0.8", strict.Quote(string(text)))
	}
	*r = Ratio(f)
	return nil
}

// maxSocketPath is the longest path of a unix socket, in bytes. The kernel's struct
// sockaddr_un has room for 107. While the service makes the socket, it appends a dot and a
// process id.
const maxSocketPath = 107 - len(".4194304")

// An Address is where a listener listens: host:port, or unix:///path. Empty: nowhere.
type Address string

// Socket returns the path of a unix socket. ok is false for host:port.
func (a Address) Socket() (path string, ok bool) { return strings.CutPrefix(string(a), "unix://") }

// IsSocket reports whether the address is that of a unix socket.
func (a Address) IsSocket() bool { return strings.HasPrefix(string(a), "unix:") }

// check returns what is wrong with an address. socket: it may be a unix socket.
func (a Address) check(socket bool) string {
	address := string(a)
	expected := "expected host:port"
	if socket {
		expected += " or unix:///path"
	}
	if a.IsSocket() {
		path, slashes := a.Socket()
		switch {
		case !socket:
			return fmt.Sprintf("%s: a unix socket cannot be used here: %s", strict.Quote(address), expected)
		case !slashes || !filepath.IsAbs(path) || len(path) == 1:
			return fmt.Sprintf("%s: the path of a unix socket must be absolute, with three slashes: unix:///path", strict.Quote(address))
		case len(path) > maxSocketPath:
			return fmt.Sprintf("%s: the path of a unix socket has at most %d bytes", strict.Quote(address), maxSocketPath)
		}
		return ""
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.ContainsAny(host, " /") {
		message := fmt.Sprintf("%s is not an address: %s", strict.Quote(address), expected)
		if address == "off" || address == "none" {
			message += `; "" turns it off`
		}
		return message
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Sprintf("%s: the port is a number up to 65535", strict.Quote(address))
	}
	return ""
}
