package settings

import "strconv"

// Origins says where settings come from: their paths, each with the name of the variable, or
// with the file and the line. A setting at its default is not in it.
type Origins map[string]string

// origins returns where the settings come from that are in the file or the environment, or
// were given with a name. A variable whose value cannot be read counts too.
func (l *settingsLoader) origins() Origins {
	all := make(Origins, len(l.locations))
	for path := range l.bad {
		all[path] = envName(path)
	}
	for path, at := range l.locations {
		if all[path] = at.path; at.line > 0 {
			all[path] = at.file + ":" + strconv.Itoa(at.line)
		}
	}
	return all
}
