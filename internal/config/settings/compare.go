package settings

import (
	"strings"

	"github.com/slidegate/slidegate/internal/config/strict"
)

// compare checks compare.
func (l *settingsLoader) compare() {
	s := &l.settings.Compare
	if s.Address == "" {
		if s.Share != 1 {
			l.problem("compare.share", "nothing is compared: compare.address is not set")
		}
		return
	}
	if !l.remote("compare.address", Address(s.Address), false) {
		return
	}
	if strings.HasPrefix(s.Address, ":") {
		l.problem("compare.address", "%s has no host: expected host:port", strict.Quote(s.Address))
	}
	if s.Share == 0 {
		l.problem("compare.share", "a share of 0%% compares nothing: set a larger one, or remove compare.address")
	}
}

// remote checks the address of another service. socket: it may be a unix socket. It reports
// whether the address is valid.
func (l *settingsLoader) remote(path string, a Address, socket bool) bool {
	message := a.check(socket)
	if message == "" && strings.HasSuffix(string(a), ":0") {
		message = strict.Quote(string(a)) + ": the port cannot be 0"
	}
	if message != "" {
		l.problem(path, "%s", message)
	}
	return message == ""
}
