package settings

import (
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slidegate/slidegate/test/configtest"
)

// TestAdviceIsAccepted gives each number, time, share and truth a wrong value, and then each form
// that the problem names.
func TestAdviceIsAccepted(t *testing.T) {
	quoted := regexp.MustCompile(`"[^"]*"`)
	forms := regexp.MustCompile(`(?:^|[ (])(true|false|[0-9][0-9a-z.]*%?)`)
	malformed := regexp.MustCompile(`expected|write|too long`)
	problem := func(path, text string) string {
		_, _, err := Load("", []string{envName(path) + "=" + text})
		if err == nil {
			return ""
		}
		for line := range strings.Lines(configtest.ProblemsOf(t, err)) {
			if _, message, ok := strings.Cut(line, envName(path)+": "); ok {
				return message
			}
		}
		return "" // a problem of another setting
	}
	d := Default()
	eachSetting(reflect.ValueOf(&d).Elem(), "", func(path string, _ reflect.StructField, v reflect.Value) {
		switch v.Interface().(type) {
		case bool, int, uint64, time.Duration, Ratio, FileMode:
		default:
			return
		}
		for _, wrong := range []string{"x", "10", "010", "0.5", "80%", "99999999999999999999"} {
			message := problem(path, wrong)
			if message == "" {
				continue
			}
			for _, form := range forms.FindAllStringSubmatch(quoted.ReplaceAllString(message, ""), -1) {
				// Another range, or a setting beside it, may be in the way.
				if again := problem(path, form[1]); form[1] != wrong && malformed.MatchString(again) {
					t.Errorf("%s=%s: %s=%s: %s", envName(path), wrong, message, form[1], again)
				}
			}
		}
	})
}
