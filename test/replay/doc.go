// Package replay proves that replays, differences and tests of rules give the decisions that a
// running rls gives.
package replay
