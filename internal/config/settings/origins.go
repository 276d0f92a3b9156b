package settings

import (
	"strconv"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// Origins says where settings come from: their paths, each with the name of the variable, or
// with the file and the line. A setting at its default is not in it.
type Origins map[string]string

// LoadOrigins is [Load] that also says where the settings come from, even on error.
func LoadOrigins(path string, environ []string, given ...Given) (Settings, Origins, error) {
	r := new(strict.Report)
	var data []byte
	if path != "" {
		var err error
		if data, err = files.Read(path, maxSettingsFile); err != nil {
			r.Addf(path, 0, "", "%s", err)
		}
	}
	return parse(r, path, data, environ, given)
}

// ParseOrigins is [Parse] that also says where the settings come from, even on error.
func ParseOrigins(name string, data []byte, environ []string, given ...Given) (Settings, Origins, error) {
	r := new(strict.Report)
	if len(data) > maxSettingsFile {
		r.Addf(name, 0, "", "%s", files.TooLarge(maxSettingsFile))
		data = nil
	}
	return parse(r, name, data, environ, given)
}

// origins returns where the settings come from that are in the file or the environment, or
// were given with a name. A variable whose value cannot be read counts too.
func (l *settingsLoader) origins() Origins {
	all := make(Origins, len(l.places))
	for path := range l.bad {
		all[path] = envName(path)
	}
	for path, at := range l.places {
		if all[path] = at.path; at.line > 0 {
			all[path] = at.file + ":" + strconv.Itoa(at.line)
		}
	}
	return all
}
