package main

import (
	"math"
	"math/rand/v2"
	"time"
)

// A logNormal is a time that people take to think: half of the times are below the median, and a
// few are far above it.
type logNormal struct {
	median time.Duration
	sigma  float64 // of the logarithm
}

func (l logNormal) draw(r *rand.Rand) time.Duration {
	return time.Duration(float64(l.median) * math.Exp(l.sigma*r.NormFloat64()))
}

// exponential returns a time with a mean: when something happens that has no memory.
func exponential(r *rand.Rand, mean time.Duration) time.Duration {
	return time.Duration(float64(mean) * r.ExpFloat64())
}

// uniform returns a time from low to high.
func uniform(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Float64()*float64(high-low))
}

// A tier is a tier with its limits for each customer. Of 100 customers, percent have it.
type tier struct {
	name    string
	percent int
	limits  []limit
}

// A limit is a number of requests in any interval of the window's length.
type limit struct {
	hits   int
	window time.Duration
}

// A retry says what a customer does after a denial.
type retry int

const (
	// prevents: it counts its own requests, and sends none that might be denied.
	prevents retry = iota
	// heeds: it waits for Retry-After, and not longer.
	heeds
	// advised: it waits for Retry-After and a random time, as docs/clients.md says.
	advised
	// ignores: it tries again soon, whatever Retry-After says.
	ignores
	// returns: it sends without a pause, heeds Retry-After, and has done its work with the first
	// request that is admitted after a denial.
	returns
	// saturates: it never waits and never stops.
	saturates
)

// mostTries is how often a customer sends a request that is denied. Then it gives up, and goes on
// with another one.
const mostTries = 5

// A behaviour is how some customers send. Of 100 customers, percent do.
type behaviour struct {
	name    string
	retry   retry
	percent int
	think   logNormal     // from an answer to the next request, while the customer is busy
	on, off time.Duration // means of how long it is busy, and of how long it pauses; off 0: it never pauses
}

// A population is customers and the people, or programs, who send for them.
type population struct {
	customers  int
	callers    int     // of all customers but the saturating one, which has others
	zipf       float64 // exponent of how many callers the customers have, by rank
	tiers      []tier  // the first customers have the first one
	behaviours []behaviour
	saturating int // callers of the saturating customer; 0: there is none
}

// standard returns the population with 10 s as the unit of time of all its times: the long window
// of its limits. Another unit makes all of them shorter or longer.
func standard(unit time.Duration, customers int) population {
	limits := func(hits int) []limit {
		return []limit{{hits, unit}, {hits / 2, unit / 5}}
	}
	think := logNormal{unit * 3 / 100, 1}
	on, off := unit/2, unit
	return population{
		customers: customers, callers: 2 * customers, zipf: 1.1, saturating: 4,
		tiers: []tier{{"enterprise", 1, limits(240)}, {"pro", 9, limits(60)}, {"free", 90, limits(20)}},
		behaviours: []behaviour{
			{"counts its own requests", prevents, 40, think, on, off},
			{"heeds Retry-After", heeds, 25, think, on, off},
			{"heeds it and adds a random time", advised, 15, think, on, off},
			{"ignores Retry-After", ignores, 20, think, on, off},
		},
	}
}

// saturating is the behaviour of the one customer who sends all the time.
func saturating(unit time.Duration) behaviour {
	return behaviour{name: "saturates", retry: saturates, think: logNormal{unit / 1000, 0.5}, on: unit}
}

// people returns the customers of a population. The same seed returns the same customers, who do
// the same for the same answers at the same times: each caller has its own random source.
func people(p population, unit time.Duration, seed uint64) []*customer {
	r := source(seed, 0)
	all := make([]*customer, p.customers)
	behaves := deal(p.customers, len(p.behaviours), func(i int) int { return p.behaviours[i].percent })
	r.Shuffle(len(behaves), func(i, j int) { behaves[i], behaves[j] = behaves[j], behaves[i] })
	has := deal(p.customers, len(p.tiers), func(i int) int { return p.tiers[i].percent })
	for i := range all {
		all[i] = &customer{id: i, tier: &p.tiers[has[i]], behaviour: &p.behaviours[behaves[i]]}
	}
	// Each customer has a caller. Zipf says for whom the others send.
	rank := rand.NewZipf(r, p.zipf, 1, uint64(p.customers-1))
	callers := uint64(0)
	hire := func(c *customer) {
		callers++
		c.callers = append(c.callers, newCaller(c, source(seed, callers)))
	}
	for i := range p.callers {
		c := i
		if i >= p.customers {
			c = int(rank.Uint64())
		}
		hire(all[c])
	}
	if p.saturating > 0 {
		b := saturating(unit)
		c := &customer{id: len(all), tier: &p.tiers[len(p.tiers)-1], behaviour: &b}
		for range p.saturating {
			hire(c)
		}
		all = append(all, c)
	}
	return all
}

// source returns the random source of a caller.
func source(seed, caller uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, caller)) }

// deal deals n things to kinds in proportion to their percentages, in the order of the kinds.
// Each kind has at least one thing while there are any.
func deal(n, kinds int, percent func(kind int) int) []int {
	var dealt []int
	upTo := 0
	for kind := range kinds {
		upTo += percent(kind)
		for end := max(len(dealt)+1, (n*upTo+50)/100); len(dealt) < min(n, end); {
			dealt = append(dealt, kind)
		}
	}
	for len(dealt) < n {
		dealt = append(dealt, kinds-1)
	}
	return dealt
}
