package settings

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

const environment = "environment"

func eachSetting(v reflect.Value, prefix string, visit func(path string, f reflect.StructField, v reflect.Value)) {
	for _, k := range strict.KeysOf(v.Type()) {
		path, value := prefix+k.Name, v.FieldByIndex(k.Field.Index)
		if scopes, ok := value.Addr().Interface().(*Scopes); ok {
			for i := range *scopes {
				eachSetting(reflect.ValueOf(&(*scopes)[i].ScopeStore).Elem(), path+"."+(*scopes)[i].Name+".", visit)
			}
			continue
		}
		if isSection(value.Type()) {
			eachSetting(value, path+".", visit)
			continue
		}
		visit(path, k.Field, value)
	}
}

// isSection reports whether a field holds settings, and is not one itself.
func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct && !strict.IsText(t) }

func envName(path string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(path, ".", "_"))
}

const (
	// maxSettingsFile bounds a settings file, in bytes. A usual one has some forty lines.
	maxSettingsFile = 1 << 20
	maxSecretFile   = 64 << 10
)

// Load returns the defaults, overridden by the file at path unless path is empty, overridden
// by the environment (as [os.Environ] returns it). It reads secrets.key_file into
// Secrets.Key. A secret in a file may be in the environment instead: see [secretValues].
//
// The error is [strict.Problems]: everything that is wrong with either. On error, the settings
// are those that could be read. Use them only to find more problems in the files of rules and
// tiers.
//
// A variable that begins with [EnvPrefix] and is no setting is a problem. The exceptions are
// [EnvConfig], [EnvCompat], [EnvAdminToken], and the variables that Kubernetes sets in every pod of a
// namespace with a service named slidegate.
//
// In place of envoyproxy/ratelimit, dropIn is what its variables say. The origins say where the
// settings come from, even on error.
func Load(path string, environ []string, dropIn ...DropIn) (Settings, Origins, error) {
	r := new(strict.Report)
	var data []byte
	if path != "" {
		var err error
		if data, err = files.Read(path, maxSettingsFile); err != nil {
			r.Addf(path, 0, "", "%s", err)
		}
	}
	return parse(r, path, data, environ, dropIn)
}

// Parse is [Load] for the content of a settings file. Problems call the
// file by its name. An empty name: there is no file.
func Parse(name string, data []byte, environ []string, dropIn ...DropIn) (Settings, Origins, error) {
	r := new(strict.Report)
	if len(data) > maxSettingsFile {
		r.Addf(name, 0, "", "%s", files.TooLarge(maxSettingsFile))
		data = nil
	}
	return parse(r, name, data, environ, dropIn)
}

func parse(r *strict.Report, file string, data []byte, environ []string, dropIn []DropIn) (Settings, Origins, error) {
	l := &settingsLoader{
		report: r, settings: Default(),
		values: make(map[string]reflect.Value), locations: make(map[string]location), bad: make(map[string]bool),
	}
	for _, d := range dropIn {
		l.settings.DropIn = d
		l.locations["PROMETHEUS_ADDR"] = location{file: environment, path: "PROMETHEUS_ADDR"}
	}
	l.index()
	if file != "" {
		r.File(file)
	}
	r.File(environment)
	for _, g := range l.settings.DropIn.Given {
		l.set(g.Path, g.Text, g.From)
	}
	if len(data) > 0 {
		l.readFile(file, data)
	}
	l.scopesOf(environ)
	l.index()
	l.readEnviron(environ)
	l.derive()
	l.validate()
	return l.settings, l.origins(), r.Err()
}

type settingsLoader struct {
	report    *strict.Report
	settings  Settings
	values    map[string]reflect.Value // the settings by their paths
	locations map[string]location      // where a setting that is not default was given
	bad       map[string]bool          // settings whose value could not be read
}

type location struct {
	file string
	line int
	path string
}

func (l *settingsLoader) index() {
	for path, value := range secretValues(&l.settings) {
		l.values[path] = reflect.ValueOf(value).Elem()
	}
	eachSetting(reflect.ValueOf(&l.settings).Elem(), "", func(path string, _ reflect.StructField, v reflect.Value) { l.values[path] = v })
}

func (l *settingsLoader) readFile(file string, data []byte) {
	root := strict.Document(file, data, l.report, "a settings file", "")
	if root == nil {
		return // or all is at its default
	}
	d := &strict.Decoder{File: file, Report: l.report, Lines: make(map[string]int)}
	d.Decode(root, reflect.ValueOf(&l.settings).Elem(), nil)
	for path, line := range d.Lines {
		l.locations[path] = location{file, line, path}
	}
}

// kubernetes matches the variables that Kubernetes sets for a service whose name begins with
// slidegate. Its ports hold URLs, which distinguishes them from a mistyped setting.
var kubernetes = regexp.MustCompile(`^SLIDEGATE_([A-Z0-9_]+_)?(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=[0-9]+$|PORT=[a-z]+://|PORT_[0-9]+_(TCP|UDP|SCTP)(_PROTO|_PORT|_ADDR)?=)`)

func (l *settingsLoader) readEnviron(environ []string) {
	paths, names := make(map[string]string), []string{EnvConfig, EnvCompat, EnvAdminToken}
	for path := range l.values {
		paths[envName(path)] = path
		names = append(names, envName(path))
	}
	slices.Sort(names)
	for _, variable := range environ {
		name, text, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, EnvPrefix) || name == EnvConfig || name == EnvCompat || name == EnvAdminToken {
			continue
		}
		path, ok := paths[name]
		if !ok {
			if kubernetes.MatchString(variable) {
				continue
			}
			l.report.Addf(environment, 0, strict.Quoteless(name), "unknown variable%s", strict.DidYouMean(name, names))
			continue
		}
		l.set(path, text, name)
	}
}

func (l *settingsLoader) set(path, text, name string) {
	delete(l.locations, path)
	if name != "" {
		l.locations[path] = location{file: environment, path: name}
	}
	if err := strict.SetText(l.values[path], text); err != nil {
		l.problem(path, "%s", err)
		delete(l.locations, path)
		l.bad[path] = true // validate reports no second problem
	}
}

func (l *settingsLoader) derive() {
	s := &l.settings
	s.GRPC.TLS.UnixSockets, s.Store.Redis.TLS.AnyName = s.DropIn.SocketTLS, s.DropIn.RedisAnyName
	l.secure("rules.xds", &s.Rules.XDS.Address, &s.Rules.XDS.TLS)
	l.secure("compare", (*Address)(&s.Compare.Address), &s.Compare.TLS)
}

// WatchPaths returns the files and directories whose change makes another generation of rules
// and tiers. It is empty if all of them are built in.
func (s Settings) WatchPaths() []string {
	var paths []string
	if s.Rules.Path != "" {
		paths = append(paths, s.Rules.Path)
	}
	if s.Rules.TiersOf != "" {
		paths = append(paths, s.Rules.TiersOf)
	}
	if s.Tiers.Source != TiersNone && s.Tiers.Path != "" {
		paths = append(paths, s.Tiers.Path)
	}
	return paths
}

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
