package settings

import (
	"encoding/base64"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/files"
	"github.com/slidegate/slidegate/internal/core/rules"
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
	Events  Events  `yaml:"events"`
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
	// PeersKey is the secret by which the instances that share a Redis know each other.
	PeersKey     Secret `yaml:"-"`
	PeersKeyFile string `yaml:"peers_key_file" doc:"a file with a random secret of at least 32 bytes, the same in all instances that share a Redis: the console of each then shows all"`
}

// Insight says what a process keeps of denials, for the admin port.
type Insight struct {
	LoggedPerSecond int `yaml:"logged_per_second" range:"0 1 10_000" doc:"how many denials a second rls logs at level info; the next line says how many were left out. 0: none"`
}

// Events says which program gets the events of budgets.
type Events struct {
	Webhook           HTTPURL `yaml:"webhook" doc:"http://host/path or https://host/path: rls posts an event there (Standard Webhooks) when 80 % of a budget is spent, and when all of it is. Empty: off"`
	WebhookSecret     Secret  `yaml:"-"`
	WebhookSecretFile string  `yaml:"webhook_secret_file" doc:"a file with the secret that signs events: whsec_ and 24 to 64 bytes in base64. Empty: they have no signature"`
}

// Key returns the bytes of the secret that signs events, or nil if there is none.
func (e *Events) Key() ([]byte, error) {
	if e.WebhookSecret == "" {
		return nil, nil
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(e.WebhookSecret), "whsec_"))
	if err != nil || len(key) < 24 || len(key) > 64 {
		return nil, errors.New("it is not whsec_ and 24 to 64 bytes in base64: make one with echo whsec_$(openssl rand -base64 32)")
	}
	return key, nil
}

// Rules says where the rules are, and what applies to all of them.
type Rules struct {
	Source       string `yaml:"source" oneof:"files xds" doc:"where rules are: files (rules.path) or xds (an xDS server, rules.xds)"`
	Path         string `yaml:"path" doc:"a rules file, or a directory with *.yaml and *.yml files in it and below; empty: the built-in example"`
	MergeDomains bool   `yaml:"merge_domains" doc:"a domain may be in several files, whose descriptors are joined; otherwise that is refused"`
	TiersOf      string `yaml:"tiers_of" doc:"a file with limits by tier for rules that have none, such as those of an xDS server; empty: none"`
	ShadowMode   bool   `yaml:"shadow_mode" doc:"shadow mode for all rules: rls evaluates and reports, and denies nothing"`
	Policy       string `yaml:"policy" oneof:"sliding fixed sliding_counter" doc:"the policy of limits that name none: sliding (exact), fixed (fixed windows, as envoyproxy/ratelimit) or sliding_counter"`
	XDS          XDS    `yaml:"xds"`
}

// The sources of rules.
const (
	RulesFiles = "files"
	RulesXDS   = "xds"
)

// XDS says how to get rules from an xDS server: RateLimitConfig resources, state of the
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
	rules.StoreErrorLocal.String(), rules.StoreErrorAllow.String(), rules.StoreErrorDeny.String(), rules.StoreErrorReported.String(),
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
	Snapshot string `yaml:"snapshot" doc:"memory store: the file that rls writes the counters to at shutdown and reads at start. Each process needs its own. FILE.history has the denials of 30 days. Empty: a restart starts from zero"`
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

// Log is the log of the service.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error" doc:"debug, info, warn or error"`
	Format string `yaml:"format" oneof:"json console reference" doc:"json, console (the default at a terminal), or reference: JSON with the keys @timestamp, @message and level"`
}

// Compare sends calls to another rate-limit service too, and reports different answers.
type Compare struct {
	Address  string    `yaml:"address" doc:"the other rate-limit service: host:port. Empty: off"`
	Fraction Ratio     `yaml:"share" doc:"the percentage of descriptors whose calls rls also sends to it: of calls with the same domain and descriptors, all are sent or none"`
	TLS      ClientTLS `yaml:"-"`
}

// Default returns the settings without a file and without variables: memory store and
// built-in rules. Nothing else knows defaults.
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
			OnError: rules.StoreErrorLocal.String(),
			Memory:  Memory{MaxBytes: 256 << 20},
			Redis:   localRedis("slidegate:"),
		},
		Headers: Headers{Styles: []string{rules.StyleRateLimit}},
		Metrics: Metrics{MaxDetailSeries: 1000},
		Secrets: Secrets{Entries: []string{"api_key", "authorization", "x-api-key"}},
		Authz:   defaultAuthz(),
		Drain:   Drain{Delay: 5 * time.Second, Timeout: 10 * time.Second},
		Log:     Log{Level: "info", Format: "json"},
		Compare: Compare{Fraction: 1},
		Insight: Insight{LoggedPerSecond: 1},
		DropIn: DropIn{
			Files: files.Which{IgnoreDotFiles: true}, NearLimit: 0.8,
			Headers: ReferenceNames{Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset"},
		},
	}
}

// EnvPrefix begins the name of every environment variable of the service.
const EnvPrefix = "SLIDEGATE_"

// EnvConfig names the settings file. The command reads it, not [Load].
const EnvConfig = EnvPrefix + "CONFIG"

// EnvCompat names the service whose environment variables the command reads too. The command
// reads it, not [Load].
const EnvCompat = EnvPrefix + "COMPAT"

// EnvAdminToken has the token that commands send to the admin port. They read it, not [Load].
const EnvAdminToken = EnvPrefix + "ADMIN_TOKEN"
