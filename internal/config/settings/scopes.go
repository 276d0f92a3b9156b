package settings

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/slidegate/slidegate/internal/config/strict"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/pkg/window"
)

// ScopeRegion is the scope of the store of the region, which rules without a scope have.
const ScopeRegion = rules.RegionScope

// Scopes are the stores that rules can name besides that of the region, in the order of their
// names.
type Scopes []Scope

// A Scope is one further store. It is always a Redis.
type Scope struct {
	Name string
	ScopeStore
}

// ScopeStore says how to ask the store of a scope.
type ScopeStore struct {
	// A charge is taken back while its log says that this may happen: for a second at least.
	Timeout time.Duration `yaml:"timeout" range:"1ms 700ms" doc:"time limit of one decision, including the connection"`
	Redis   Redis         `yaml:"redis"`
}

// maxScopeTimeout is the most that store.timeout may be with store.scopes.
const maxScopeTimeout = 700 * time.Millisecond

func newScope(name string) Scope {
	redis := Default().Store.Redis
	redis.URL = RedisURL{}
	return Scope{name, ScopeStore{Timeout: 100 * time.Millisecond, Redis: redis}}
}

type scopeNode ScopeStore

// ReadNode reads a node.
func (s *scopeNode) ReadNode(d *strict.Decoder, n *strict.Node, p *strict.Path) {
	*s = scopeNode(newScope("").ScopeStore)
	d.Object(n, reflect.ValueOf((*ScopeStore)(s)).Elem(), p)
}

// ReadNode reads a node.
func (s *Scopes) ReadNode(d *strict.Decoder, n *strict.Node, p *strict.Path) {
	var all strict.Ordered[scopeNode]
	all.ReadNode(d, n, p)
	d.Lines[d.Render(p)] = d.Position(n, p).Line
	for i := range all {
		switch name := all[i].Key; {
		case name == ScopeRegion:
			d.Problem(all[i].Position, "%s is the scope of store.redis: choose another name", ScopeRegion)
		case !scopeName.MatchString(name):
			d.Problem(all[i].Position, "the name of a scope has up to 32 lower-case letters, digits and _, and begins with a letter")
		default:
			*s = append(*s, Scope{name, ScopeStore(all[i].Value)})
			d.Lines[d.Render(p)+"."+name] = all[i].Line
		}
	}
}

var scopeName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,31}$`)

// Names returns the names that rules can use.
func (s Scopes) Names() []string {
	names := []string{ScopeRegion}
	for i := range s {
		names = append(names, s[i].Name)
	}
	return names
}

// RedisOf returns the Redis of a scope, and its section of the settings.
func (s *Store) RedisOf(scope window.Scope) (r *Redis, section string) {
	if scope == window.Region {
		return &s.Redis, "store.redis"
	}
	one := &s.Scopes[scope-1]
	return &one.Redis, "store.scopes." + one.Name + ".redis"
}

// TimeoutOf returns the time limit of one decision in a scope.
func (s *Store) TimeoutOf(scope window.Scope) time.Duration {
	if scope == window.Region {
		return s.Timeout
	}
	return s.Scopes[scope-1].Timeout
}

const envScopes = EnvPrefix + "STORE_SCOPES_"

func (l *settingsLoader) scopesOf(environ []string) {
	var ends []string
	one := newScope("")
	eachSetting(reflect.ValueOf(&one.ScopeStore).Elem(), "", func(path string, _ reflect.StructField, _ reflect.Value) {
		ends = append(ends, strings.TrimPrefix(envName("_"+path), EnvPrefix))
	})
	all := &l.settings.Store.Scopes
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		rest, ok := strings.CutPrefix(name, envScopes)
		if !ok {
			continue
		}
		for _, end := range ends {
			scope, found := strings.CutSuffix(rest, end)
			if !found {
				continue
			}
			scope = strings.ToLower(scope)
			known := slices.ContainsFunc(*all, func(s Scope) bool { return s.Name == scope })
			if !known && scope != ScopeRegion && scopeName.MatchString(scope) {
				*all = append(*all, newScope(scope))
				at := location{file: environment, path: name}
				l.locations["store.scopes."+scope] = at
				if _, ok := l.locations["store.scopes"]; !ok {
					l.locations["store.scopes"] = at
				}
			}
			break
		}
	}
	slices.SortFunc(*all, func(a, b Scope) int { return strings.Compare(a.Name, b.Name) })
}

func (l *settingsLoader) scopes() {
	s := &l.settings.Store
	if len(s.Scopes) == 0 {
		return
	}
	if s.Type != StoreRedis {
		l.problem(l.given("store.type", "store.scopes"), "scopes need store.type %s: a request can meet limits of several scopes, and only Redis can take back what one of them has charged", StoreRedis)
	}
	if len(s.Scopes) > window.MaxScope {
		l.problem("store.scopes", "%d scopes, and there can be %d besides %s", len(s.Scopes), window.MaxScope, ScopeRegion)
	}
	if s.Timeout > maxScopeTimeout {
		l.problem("store.timeout", "%v is above %v, the most with store.scopes: what one scope has charged is taken back if another one denies, and it must be known soon", s.Timeout, maxScopeTimeout)
	}
	others := []struct {
		path  string
		redis *Redis
	}{{"store.redis", &s.Redis}}
	for i := range s.Scopes {
		one := &s.Scopes[i]
		path := "store.scopes." + one.Name + ".redis"
		if one.Redis.URL.URL == "" {
			l.problem(path+".url", "a scope needs the URL of its Redis, such as %s", schemes["redis"].form)
			continue
		}
		l.redisConnection(path, &one.Redis)
		for _, o := range others {
			if one.Redis.KeyPrefix == o.redis.KeyPrefix && one.Redis.URL.same(&o.redis.URL) {
				l.problem(path+".url", "%s has the same servers and the same key_prefix, so both scopes would have the same logs: set another url or key_prefix", o.path)
				break
			}
		}
		others = append(others, struct {
			path  string
			redis *Redis
		}{path, &one.Redis})
	}
}

func (u *RedisURL) same(o *RedisURL) bool {
	return slices.Equal(u.Addresses, o.Addresses) && u.Topology == o.Topology && u.Socket == o.Socket && u.Master == o.Master && u.Database == o.Database
}
