// Package glance has the types of what /v1/state answers: how one process is, or several are.
package glance

import (
	"time"

	"github.com/slidegate/slidegate/internal/operate/insight"
)

// State is what a glance at one process shows, or at several: see package merge.
type State struct {
	Instance  string            `json:"instance"`
	Instances insight.Instances `json:"instances,omitempty"`
	Version   string            `json:"version"`
	Started   time.Time         `json:"started"`
	At        time.Time         `json:"at"`
	// Problems are what an operator should look at, the worst first.
	Problems []Problem `json:"problems"`
	Rates    Rates     `json:"rates"`
	Latency  Latency   `json:"latency"`
	Store    Store     `json:"store"`
	Config   Config    `json:"config"`
	// Tiers describes the customer source: file, redis, postgres, http or none, and its state.
	Tiers  string `json:"tiers"`
	Leases Leases `json:"leases"`
}

// A Problem is something that an operator should look at.
type Problem struct {
	// Level is warning or error.
	Level string `json:"level"`
	Text  string `json:"text"`
	// Help is the path on the admin port of the section that says what to do.
	Help string `json:"help,omitempty"`
}

// Rates are counts per second. A point is the mean of one interval, the oldest first.
type Rates struct {
	// Interval is the length of one point, in seconds.
	Interval  float64   `json:"interval_seconds"`
	Decisions []float64 `json:"decisions"`
	Denials   []float64 `json:"denials"`
	Degraded  []float64 `json:"degraded"`
	// Rules are those with the most decisions in the last interval, at most 50.
	Rules []RuleRate `json:"rules"`
}

// A RuleRate is the rate of one rule.
type RuleRate struct {
	Domain    string    `json:"domain"`
	Rule      string    `json:"rule"`
	Decisions []float64 `json:"decisions"`
	Denials   []float64 `json:"denials"`
	// Near and Shadow are of the last interval: hits near the limit, and denials that were
	// only observed.
	Near   float64 `json:"near"`
	Shadow float64 `json:"shadow"`
}

// Latency is the time of calls in the last minutes, in seconds.
type Latency struct {
	P50      float64 `json:"p50"`
	P99      float64 `json:"p99"`
	StoreP50 float64 `json:"store_p50"`
	StoreP99 float64 `json:"store_p99"`
	Deadline float64 `json:"deadline"`
}

// Store is the store and its servers.
type Store struct {
	Type    string   `json:"type"` // memory or redis
	Servers []Server `json:"servers,omitempty"`
	// Instances is how many instances share the Redis.
	Instances int `json:"instances,omitempty" doc:"how many instances share the Redis"`
	// Logs and Bytes are of the memory store.
	Logs  int   `json:"logs,omitempty"`
	Bytes int64 `json:"bytes,omitempty"`
	// Degraded is the number of requests that were decided without the store.
	Degraded uint64 `json:"degraded"`
}

// A Server is one server of the store.
type Server struct {
	Address string `json:"address"`
	// Reason is why the server is not asked. Empty: it decides.
	Reason string `json:"reason,omitempty"`
	// Evicts is the policy by which the server evicts logs. Empty: it does not.
	Evicts string `json:"evicts,omitempty"`
}

// Config is the active configuration.
type Config struct {
	Generation string    `json:"generation"`
	Loaded     time.Time `json:"loaded"`
	Files      []string  `json:"files"`
	Rules      int       `json:"rules"`
	Subjects   int       `json:"subjects"`
	// Refused has the errors of a newer configuration. Empty: none.
	Refused string   `json:"refused,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	// Carried are the keys of the limits that tiers carry: limit, limit_NAME. Nil: not known, because a
	// customer source may have more.
	Carried []string `json:"carried,omitzero" doc:"the keys of the limits that tiers carry, if the tiers file has all of them"`
}

// Leases are the hits that this process reserved, and what became of them.
type Leases struct {
	Made     uint64 `json:"made"`
	Admitted uint64 `json:"admitted"`
	Returned uint64 `json:"returned"`
}
