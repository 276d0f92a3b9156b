// Package tiers proves that each source of customers gives their tiers, through its faults, and
// that no key of theirs leaves a trace.
package tiers
