// Package outage proves what rls does with several instances, regions and kinds of Redis, and
// while one of them is unavailable.
package outage
