package settings

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
)

// problem reports a problem with the value of a setting, at the location that sets it. A setting that is
// missing gets the location of its scope. If only variables name the scope, that is its own variable.
func (l *settingsLoader) problem(path, format string, args ...any) {
	if l.bad[path] {
		return
	}
	at, ok := l.locations[path]
	for section := path; !ok; {
		end := strings.LastIndexByte(section, '.')
		if end < 0 {
			break
		}
		section = section[:end]
		if at, ok = l.locations[section]; at.file == environment {
			at.path = envName(path)
		} else {
			at.path = path
		}
	}
	if !ok {
		at = location{path: path}
	}
	l.report.Addf(at.file, at.line, at.path, format, args...)
}

// given returns the first of some settings that is set, or else the last.
func (l *settingsLoader) given(paths ...string) string {
	for _, p := range paths {
		if _, ok := l.locations[p]; ok {
			return p
		}
	}
	return paths[len(paths)-1]
}

func (l *settingsLoader) oneOf(path, got string, names []string) {
	if !slices.Contains(names, got) {
		l.problem(path, "%s", strict.NotOneOf(got, names))
	}
}

// bounds checks a setting by its tags: oneof lists its values, and range has its least and its
// most value. A 0 before those two means that zero turns the setting off. Ranges are wide: they
// catch a wrong unit, and allow unusual values.
func (l *settingsLoader) bounds(path string, f reflect.StructField, v reflect.Value) {
	if names := f.Tag.Get("oneof"); names != "" {
		l.oneOf(path, v.String(), strings.Fields(names))
	}
	texts := strings.Fields(f.Tag.Get("range"))
	if len(texts) == 0 {
		return
	}
	bounds := reflect.MakeSlice(reflect.SliceOf(f.Type), len(texts), len(texts))
	for i, text := range texts {
		if err := strict.SetText(bounds.Index(i), text); err != nil {
			panic(path + ": " + err.Error()) // the tag is wrong
		}
	}
	number := reflect.TypeFor[int64]()
	is := func(i int) int64 { return bounds.Index(i).Convert(number).Int() }
	got, last := v.Convert(number).Int(), len(texts)-1
	switch {
	case got >= is(last-1) && got <= is(last):
	case last == 1:
		l.problem(path, "%v is not between %v and %v", v, bounds.Index(0), bounds.Index(1))
	case got != 0:
		l.problem(path, "%v is not 0 and not between %v and %v", v, bounds.Index(1), bounds.Index(2))
	}
}

func (l *settingsLoader) validate() {
	eachSetting(reflect.ValueOf(&l.settings).Elem(), "", l.bounds)
	s := &l.settings
	l.listeners()
	l.admin()
	l.hosts("http.hosts", s.HTTP.Hosts)
	l.hosts("admin.hosts", s.Admin.Hosts)
	l.serverTLS()
	l.tiers()
	l.oneOf("store.on_error", s.Store.OnError, StoreErrors)
	l.redisConnection("store.redis", &s.Store.Redis)
	l.scopes()
	l.rulesSource()
	l.compare()
	for _, message := range CheckStyles(s.Headers.Styles) {
		l.problem("headers.styles", "%s", message)
	}
	l.secrets()
	l.authz()
	l.events()
}

func (l *settingsLoader) listeners() {
	type listener struct {
		path    string
		address Address
	}
	var all []listener
	for _, a := range l.settings.GRPC.Address {
		all = append(all, listener{"grpc.address", a})
	}
	if len(all) == 0 {
		l.problem("grpc.address", "at least one address is needed")
	}
	all = append(all, listener{"http.address", l.settings.HTTP.Address}, listener{"admin.address", l.settings.Admin.Address},
		listener{"metrics.address", l.settings.Metrics.Address}, listener{"PROMETHEUS_ADDR", l.settings.DropIn.Metrics.Address})
	for i, a := range all {
		isGRPC := a.path == "grpc.address"
		if a.address == "" && !isGRPC {
			continue
		}
		if message := a.address.check(isGRPC); message != "" {
			l.problem(a.path, "%s", message)
			continue
		}
		same := slices.IndexFunc(all[:i], func(b listener) bool { return b.address == a.address })
		switch text := strict.Quote(string(a.address)); {
		case same < 0, strings.HasSuffix(string(a.address), ":0"): // each listener with port 0 gets its own port
		case isGRPC:
			l.problem(a.path, "%s is listed twice", text)
		default:
			l.problem(a.path, "%s is also %s", text, all[same].path)
		}
	}
}

// hosts checks a list of host names and puts them into the form for comparisons: lower case,
// without a dot at the end.
func (l *settingsLoader) hosts(path string, names []string) {
	for i, name := range names {
		host := strings.ToLower(strings.TrimSuffix(name, "."))
		switch _, err := netip.ParseAddr(strings.Trim(host, "[]")); {
		case err == nil || host == "localhost":
			l.problem(path, "%s needs no entry: IP addresses and localhost are always accepted", strict.Quote(name))
		case !hostName.MatchString(host):
			l.problem(path, "%s is not a host name: write it without scheme, port and path, for example rls.example.com", strict.Quote(name))
		case slices.Contains(names[:i], host):
			l.problem(path, "%s is listed twice", strict.Quote(name))
		}
		names[i] = host
	}
}

// hostName matches the name of a host in lower case. Compose and Kubernetes allow underscores,
// which DNS does not.
var hostName = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]{0,251}[a-z0-9_])?$`)

const minSecret = 16 // 128 bits: cannot be guessed

func (l *settingsLoader) secrets() {
	s := &l.settings.Secrets
	for i, e := range s.Entries {
		switch {
		case e == "":
			l.problem("secrets.entries", "a descriptor key cannot be empty")
		case slices.Contains(s.Entries[:i], e):
			l.problem("secrets.entries", "%s is listed twice", strict.Quote(e))
		}
	}
	l.secret("secrets.key", &s.Key, s.KeyFile, minSecret)
	l.secret("secrets.previous_key", &s.PreviousKey, s.PreviousKeyFile, minSecret)
	switch {
	case s.PreviousUnkeyed && (s.PreviousKey != "" || s.PreviousKeyFile != ""):
		l.problem("secrets.previous_unkeyed", "%s is also set: set only one of the two", l.given("secrets.previous_key_file", "secrets.previous_key"))
	case s.PreviousUnkeyed && s.Key == "" && s.KeyFile == "":
		l.problem("secrets.previous_unkeyed", "secrets.key_file is not set: digests are plain SHA-256 now")
	case s.PreviousKey != "" && s.PreviousKey == s.Key:
		l.problem(l.given("secrets.previous_key_file", "secrets.previous_key"), "is the same as %s: set the key that it replaced", l.given("secrets.key_file", "secrets.key"))
	}
}

// secret checks a secret of at least so many bytes, and reads the file that holds it instead.
func (l *settingsLoader) secret(path string, s *Secret, file string, least int) {
	switch {
	case *s != "" && file != "":
		l.problem(path+"_file", "%s is also set: set only one of the two", path)
	case *s != "" && len(*s) < least:
		l.problem(path, "the secret has fewer than %d bytes", least)
	case file != "":
		text, err := readLine(file)
		if err == nil && len(text) < least {
			err = fmt.Errorf("the secret has fewer than %d bytes", least)
		}
		if err != nil {
			l.problem(path+"_file", "%s: %s", strict.Quoteless(file), err)
			return
		}
		*s = Secret(text)
	}
}

func (l *settingsLoader) events() {
	const path = "events.webhook_secret"
	e := &l.settings.Events
	l.httpURL("events.webhook", &e.Webhook, "the receiver knows rls by its signature: set events.webhook_secret_file")
	if e.Webhook.URL == "" {
		l.refuse("events", []string{"webhook_secret_file", "webhook_secret"}, "there is no receiver: set events.webhook")
		return
	}
	l.secret(path, &e.WebhookSecret, e.WebhookSecretFile, 0)
	if _, err := e.Key(); err != nil {
		l.problem(l.given(path+"_file", path), "%s", err)
	}
}

// readLine reads a small file, without the newline that editors end a file with.
func readLine(file string) (string, error) {
	data, err := files.Read(file, maxSecretFile)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r"), nil
}

// secretValues returns the secrets that a file holds, by their names. A variable can have the
// secret itself: SLIDEGATE_STORE_REDIS_PASSWORD in place of SLIDEGATE_STORE_REDIS_PASSWORD_FILE.
// The settings file has only names of files.
func secretValues(s *Settings) map[string]any {
	all := map[string]any{
		"store.redis.password":          &s.Store.Redis.Password,
		"store.redis.sentinel_password": &s.Store.Redis.SentinelPassword,
		"tiers.postgres.password":       &s.Tiers.Postgres.Password,
		"tiers.http.token":              &s.Tiers.HTTP.Token,
		"secrets.key":                   &s.Secrets.Key,
		"admin.peers_key":               &s.Admin.PeersKey,
		"events.webhook_secret":         &s.Events.WebhookSecret,
		"secrets.previous_key":          &s.Secrets.PreviousKey,
	}
	for i := range s.Store.Scopes {
		one := &s.Store.Scopes[i]
		all["store.scopes."+one.Name+".redis.password"] = &one.Redis.Password
		all["store.scopes."+one.Name+".redis.sentinel_password"] = &one.Redis.SentinelPassword
	}
	return all
}

func (l *settingsLoader) rulesSource() {
	const path = "rules.xds"
	r, x := &l.settings.Rules, &l.settings.Rules.XDS
	if r.Source == RulesXDS {
		if x.Address == "" {
			l.problem(path+".address", "is not set, and rules.source is xds: set host:port of the xDS server")
		}
		if r.Path != "" {
			l.problem("rules.path", "rules.source is xds, so rls reads no rules from files: remove rules.path, or set rules.source to files")
		}
	}
	if x.Address != "" {
		l.remote(path+".address", x.Address, true)
	}
	if x.NodeID == "" {
		l.problem(path+".node_id", "a node needs an id: servers choose the rules by it")
	}
	l.clientTLS(path+".tls", x.TLS)
}
