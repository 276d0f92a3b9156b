package settings

import (
	"fmt"
	"math"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/policy"
)

// Settings say how the service runs. The zero value is not usable: [Default] and [Load] make
// settings, and Load checks them. They are safe for concurrent reading, and safe to print,
// since secrets in them hide themselves.
type Settings struct {
	GRPC    GRPC    `yaml:"grpc"`
	HTTP    HTTP    `yaml:"http"`
	Admin   Admin   `yaml:"admin"`
	Rules   Rules   `yaml:"rules"`
	Tiers   Tiers   `yaml:"tiers"`
	Store   Store   `yaml:"store"`
	Headers Headers `yaml:"headers"`
	Metrics Metrics `yaml:"metrics"`
	Secrets Secrets `yaml:"secrets"`
	Authz   Authz   `yaml:"authz"`
	Drain   Drain   `yaml:"drain"`
	Log     Log     `yaml:"log"`
	Compare Compare `yaml:"compare"`
	Insight Insight `yaml:"insight"`
	DropIn  DropIn  `yaml:"-"`
}

// GRPC is the listener for Envoy.
type GRPC struct {
	Address          []Address     `yaml:"address" doc:"the addresses that Envoy calls: host:port or unix:///path, several separated by commas"`
	SocketMode       FileMode      `yaml:"socket_mode" doc:"file mode of unix sockets"`
	TLS              ServerTLS     `yaml:"tls"`
	Transport        string        `yaml:"transport" oneof:"unary standard" doc:"the HTTP/2 server: unary (built in, for unary calls, at a fraction of the CPU) or standard (grpc-go, which also serves reflection and the Watch of health, and reads gzip)"`
	MaxConnectionAge time.Duration `yaml:"max_connection_age" range:"0 1s 400d" doc:"how long a connection lives until rls asks the client to reconnect, so that load spreads to new instances; 0s: no bound"`
}

// The transports.
const (
	TransportUnary    = "unary"
	TransportStandard = "standard"
)

// HTTP is the listener for people and probes.
type HTTP struct {
	Address Address  `yaml:"address" doc:"the address of /healthcheck, /readyz, /json and /authz: host:port; empty: off"`
	Hosts   []string `yaml:"hosts" doc:"host names accepted in Host, separated by commas. IP addresses and localhost need no entry. /healthcheck, /readyz and paths below /authz/ accept any name"`
	Ready   string   `yaml:"ready" oneof:"always store" doc:"when /readyz answers 200: always (while the process serves) or store (while the store decides; an outage of Redis then makes every instance not ready)"`
}

// When an instance is ready.
const (
	ReadyAlways = "always"
	ReadyStore  = "store"
)

// Admin is the listener for operators.
type Admin struct {
	Address Address  `yaml:"address" doc:"the address of the console, /v1, /metrics, /rlconfig and pprof: host:port; empty: off"`
	Hosts   []string `yaml:"hosts" doc:"host names accepted in Host, separated by commas: add the name that Prometheus scrapes. IP addresses and localhost need no entry"`
	// TokenFile has a line for each token: read TOKEN or act TOKEN.
	TokenFile string `yaml:"token_file" doc:"a file with the tokens of the admin port, one a line: read TOKEN or act TOKEN. Without it and admin.hosts, reads on loopback need none. Required if the address is not on loopback"`
}

// Insight says what a process keeps of denials, for the admin port.
type Insight struct {
	LoggedPerSecond int `yaml:"logged_per_second" range:"0 1 10_000" doc:"how many denials a second rls logs at level info; the next line says how many were left out. 0: none"`
}

// Rules says where the rules are, and what applies to all of them.
type Rules struct {
	Source       string `yaml:"source" oneof:"files xds" doc:"where rules are: files (rules.path) or xds (an xDS server, rules.xds)"`
	Path         string `yaml:"path" doc:"a rules file, or a directory with *.yaml and *.yml files in it and below; empty: the built-in example"`
	MergeDomains bool   `yaml:"merge_domains" doc:"a domain may be in several files, whose descriptors are joined; otherwise that is refused"`
	ShadowMode   bool   `yaml:"shadow_mode" doc:"shadow mode for all rules: rls evaluates and reports, and denies nothing"`
	Policy       string `yaml:"policy" oneof:"sliding fixed sliding_counter" doc:"the policy of limits that name none: sliding (exact), fixed (fixed windows, as envoyproxy/ratelimit) or sliding_counter"`
	XDS          XDS    `yaml:"xds"`
}

// The sources of rules.
const (
	RulesFiles = "files"
	RulesXDS   = "xds"
)

// XDS says how to get rules from a management server: RateLimitConfig resources, state of the
// world over ADS.
type XDS struct {
	Address Address   `yaml:"address" doc:"the xDS server: host:port or unix:///path"`
	NodeID  string    `yaml:"node_id" doc:"the id of the node in requests. Servers choose the rules by it"`
	TLS     ClientTLS `yaml:"tls"`
}

// ClientTLS is TLS of a connection that rls makes, where no URL says whether there is TLS.
type ClientTLS struct {
	Enabled bool `yaml:"-"`
	TLS
}

// The stores.
const (
	StoreMemory = "memory"
	StoreRedis  = "redis"
)

// StoreErrors are the choices of on_store_error and store.on_error.
var StoreErrors = []string{
	policy.StoreErrorLocal.String(), policy.StoreErrorAllow.String(), policy.StoreErrorDeny.String(), policy.StoreErrorReported.String(),
}

// Store says where logs are kept.
type Store struct {
	Type    string        `yaml:"type" oneof:"memory redis" doc:"where counters are kept: memory (in this process) or redis (shared by all instances)"`
	Timeout time.Duration `yaml:"timeout" range:"1ms 10s" doc:"time limit of one decision, including the connection; keep it below Envoy's timeout (20ms)"`
	OnError string        `yaml:"on_error" doc:"a request that the store cannot decide, unless its rule has on_store_error: local (each instance enforces its part of the limit; memory store: report), allow, deny or report (Envoy decides)"`
	Memory  Memory        `yaml:"memory"`
	Redis   Redis         `yaml:"redis"`
	Scopes  Scopes        `yaml:"scopes" doc:"redis store: other stores that rules can name with scope, such as global, which all regions share. Each name has timeout and redis with the settings of store.redis"`
}

// Memory is the memory store.
type Memory struct {
	MaxBytes uint64 `yaml:"max_bytes" range:"0 1_048_576 1_125_899_906_842_624" doc:"memory store: most memory for counters, in bytes; 0: no bound"`
	Snapshot string `yaml:"snapshot" doc:"memory store: the file that rls writes the counters to at shutdown and reads at start. Each process needs its own. Empty: a restart starts from zero"`
}

// Bound returns MaxBytes as a signed number.
func (m *Memory) Bound() int64 { return int64(min(m.MaxBytes, math.MaxInt64)) }

// MaxLogSlots is how many slots a log in Redis has at most.
const MaxLogSlots = 20_000

// Redis says how to connect to Redis.
type Redis struct {
	URL                  RedisURL `yaml:"url" doc:"redis://host:port/db, unix:///path?db=0, redis-sentinel://host:port,host:port/master/db or redis-cluster://host:port,host:port; rediss for TLS; user:password@ before the hosts, or below"`
	Username             string   `yaml:"username" doc:"the user of the ACL; empty: the default user"`
	Password             Secret   `yaml:"-"`
	PasswordFile         string   `yaml:"password_file" doc:"a file with the password; new connections use a changed file"`
	SentinelUsername     string   `yaml:"sentinel_username" doc:"the user of the ACL of the sentinels; empty: their default user"`
	SentinelPassword     Secret   `yaml:"-"`
	SentinelPasswordFile string   `yaml:"sentinel_password_file" doc:"a file with the password of the sentinels; new connections use a changed file"`
	TLS                  TLS      `yaml:"tls"`
	PoolSize             int      `yaml:"pool_size" range:"0 10_000" doc:"connections to each server; 0: 10 for each CPU"`
	KeyPrefix            string   `yaml:"key_prefix" doc:"the prefix of every key that rls uses in Redis"`
}

// Metrics bounds the metrics, and says where Prometheus reads them besides the admin port.
type Metrics struct {
	Address         Address `yaml:"address" doc:"an address with /metrics and no other page, for Prometheus: host:port; empty: off. The admin port has /metrics too"`
	MaxDetailSeries int     `yaml:"max_detail_series" range:"0 1_000_000" doc:"most series for values of descriptors (detailed_metric, value_to_metric); values beyond share one series named other."`
}

// Secrets says which descriptor entries hold API keys and how they are digested.
type Secrets struct {
	Entries         []string `yaml:"entries" doc:"keys of descriptor entries, in any case, whose values are API keys; rls digests them before it logs or stores anything"`
	Key             Secret   `yaml:"-"`
	KeyFile         string   `yaml:"key_file" doc:"a file with the secret key of the digests of API keys, at least 16 bytes; empty: plain SHA-256"`
	PreviousKey     Secret   `yaml:"-"`
	PreviousKeyFile string   `yaml:"previous_key_file" doc:"a file with the secret key that key_file replaces"`
	PreviousUnkeyed bool     `yaml:"previous_unkeyed" doc:"tiers may still have plain SHA-256 digests, while key_file is introduced"`
}

// Drain says how the service stops.
type Drain struct {
	Delay      time.Duration `yaml:"delay" range:"0 24h" doc:"after SIGTERM: how long rls still answers everything"`
	Timeout    time.Duration `yaml:"timeout" range:"1ms 24h" doc:"after drain.delay: how long calls in flight may take"`
	NotServing bool          `yaml:"not_serving" doc:"report NOT_SERVING during the delay. Set it only if other instances take over: with a single instance Envoy could let every request pass"`
}

// Log is the service's own log.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error" doc:"debug, info, warn or error"`
	Format string `yaml:"format" oneof:"json console reference" doc:"json, console, or reference: JSON with the keys @timestamp, @message and level"`
}

// Compare asks another rate-limit service the same questions and reports other answers.
type Compare struct {
	Address string    `yaml:"address" doc:"the other rate-limit service: host:port. Empty: off"`
	Share   Ratio     `yaml:"share" doc:"the percentage of descriptors whose calls rls also sends to it: of calls with the same domain and descriptors, all are sent or none"`
	TLS     ClientTLS `yaml:"-"`
}

// Default returns the settings without a file and without variables: memory store and
// built-in rules. It is the only place that knows defaults.
func Default() Settings {
	return Settings{
		GRPC: GRPC{
			Address:    []Address{":8081"},
			SocketMode: 0o660,
			Transport:  TransportUnary,
		},
		HTTP:  HTTP{Address: ":8080", Hosts: []string{}, Ready: ReadyAlways},
		Admin: Admin{Address: "127.0.0.1:6070", Hosts: []string{}},
		Rules: Rules{
			Source: RulesFiles, Policy: "sliding",
			XDS: XDS{NodeID: "slidegate"},
		},
		Tiers: defaultTiers(),
		Store: Store{
			Type:    StoreMemory,
			Timeout: 15 * time.Millisecond,
			OnError: policy.StoreErrorLocal.String(),
			Memory:  Memory{MaxBytes: 256 << 20},
			Redis:   localRedis("slidegate:"),
		},
		Headers: Headers{Styles: []string{policy.StyleRateLimit}},
		Metrics: Metrics{MaxDetailSeries: 1000},
		Secrets: Secrets{Entries: []string{"api_key", "authorization", "x-api-key"}},
		Authz:   defaultAuthz(),
		Drain:   Drain{Delay: 5 * time.Second, Timeout: 10 * time.Second},
		Log:     Log{Level: "info", Format: "json"},
		Compare: Compare{Share: 1},
		Insight: Insight{LoggedPerSecond: 1},
		DropIn: DropIn{
			Files: files.Which{IgnoreDotFiles: true}, NearLimit: 0.8,
			Headers: ReferenceNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
		},
	}
}

// EnvPrefix begins the name of every environment variable of the service.
const EnvPrefix = "SLIDEGATE_"

// environment is the File of a problem with an environment variable.
const environment = "environment"

// EnvConfig names the settings file. The command reads it, not [Load].
const EnvConfig = EnvPrefix + "CONFIG"

// EnvCompat names the service whose environment variables the command reads too. The command
// reads it, not [Load].
const EnvCompat = EnvPrefix + "COMPAT"

// EnvAdminToken has the token that commands send to the admin port. They read it, not [Load].
const EnvAdminToken = EnvPrefix + "ADMIN_TOKEN"

// eachSetting calls back for every setting below v, in order.
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
		values: make(map[string]reflect.Value), places: make(map[string]place), bad: make(map[string]bool),
	}
	for _, d := range dropIn {
		l.settings.DropIn = d
		l.places["PROMETHEUS_ADDR"] = place{file: environment, path: "PROMETHEUS_ADDR"}
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

// derive sets the values that follow from others.
func (l *settingsLoader) derive() {
	s := &l.settings
	s.GRPC.TLS.UnixSockets, s.Store.Redis.TLS.AnyName = s.DropIn.SocketTLS, s.DropIn.RedisAnyName
	l.secure("rules.xds", &s.Rules.XDS.Address, &s.Rules.XDS.TLS)
	l.secure("compare", (*Address)(&s.Compare.Address), &s.Compare.TLS)
}

type settingsLoader struct {
	report   *strict.Report
	settings Settings
	values   map[string]reflect.Value // the settings by their paths
	places   map[string]place         // where a setting that is not default was given
	bad      map[string]bool          // settings whose value could not be read
}

// place is where the value of a setting comes from.
type place struct {
	file string
	line int
	path string
}

// index finds all settings by their paths.
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
	d := &strict.Decoder{File: file, Report: l.report, Lines: make(map[string]int), Gone: adviceFor}
	d.Decode(root, reflect.ValueOf(&l.settings).Elem(), nil)
	for path, line := range d.Lines {
		l.places[path] = place{file, line, path}
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
			if advice, gone := adviceForVariable(name); gone {
				l.report.Addf(environment, 0, name, "%s", advice)
				continue
			}
			l.report.Addf(environment, 0, strict.Quoteless(name), "unknown variable%s", strict.DidYouMean(name, names))
			continue
		}
		l.set(path, text, name)
	}
}

// set sets a setting from the text of a variable.
func (l *settingsLoader) set(path, text, name string) {
	delete(l.places, path)
	if name != "" {
		l.places[path] = place{file: environment, path: name}
	}
	if err := strict.SetText(l.values[path], text); err != nil {
		l.problem(path, "%s", err)
		delete(l.places, path)
		l.bad[path] = true // validate reports no second problem
	}
}

// problem reports a problem with the value of a setting, at the place that sets it. A setting that is
// missing gets the place of its scope. If only variables name the scope, that is its own variable.
func (l *settingsLoader) problem(path, format string, args ...any) {
	if l.bad[path] {
		return
	}
	at, ok := l.places[path]
	for section := path; !ok; {
		end := strings.LastIndexByte(section, '.')
		if end < 0 {
			break
		}
		section = section[:end]
		if at, ok = l.places[section]; at.file == environment {
			at.path = envName(path)
		} else {
			at.path = path
		}
	}
	if !ok {
		at = place{path: path}
	}
	l.report.Addf(at.file, at.line, at.path, format, args...)
}

// given returns the first of some settings that is set, or else the last.
func (l *settingsLoader) given(paths ...string) string {
	for _, p := range paths {
		if _, ok := l.places[p]; ok {
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

const minSecret = 16 // 128 bits: cannot be guessed

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
	l.secret("secrets.key", &s.Key, s.KeyFile)
	l.secret("secrets.previous_key", &s.PreviousKey, s.PreviousKeyFile)
	switch {
	case s.PreviousUnkeyed && (s.PreviousKey != "" || s.PreviousKeyFile != ""):
		l.problem("secrets.previous_unkeyed", "%s is also set: set only one of the two", l.given("secrets.previous_key_file", "secrets.previous_key"))
	case s.PreviousUnkeyed && s.Key == "" && s.KeyFile == "":
		l.problem("secrets.previous_unkeyed", "secrets.key_file is not set: digests are plain SHA-256 now")
	case s.PreviousKey != "" && s.PreviousKey == s.Key:
		l.problem(l.given("secrets.previous_key_file", "secrets.previous_key"), "is the same as %s: set the key that it replaced", l.given("secrets.key_file", "secrets.key"))
	}
}

// secret checks a secret, and reads the file that holds it instead.
func (l *settingsLoader) secret(path string, s *Secret, file string) {
	switch {
	case *s != "" && file != "":
		l.problem(path+"_file", "%s is also set: set only one of the two", path)
	case *s != "" && len(*s) < minSecret:
		l.problem(path, "the secret has fewer than %d bytes", minSecret)
	case file != "":
		text, err := readLine(file)
		if err == nil && len(text) < minSecret {
			err = fmt.Errorf("the secret has fewer than %d bytes", minSecret)
		}
		if err != nil {
			l.problem(path+"_file", "%s: %s", strict.Quoteless(file), err)
			return
		}
		*s = Secret(text)
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

// WatchPaths returns the files and directories whose change makes another generation of rules
// and tiers. It is empty if all of them are built in.
func (s Settings) WatchPaths() []string {
	var paths []string
	if s.Rules.Path != "" {
		paths = append(paths, s.Rules.Path)
	}
	if s.Tiers.Source != TiersNone && s.Tiers.Path != "" {
		paths = append(paths, s.Tiers.Path)
	}
	return paths
}
