// Package inspect has what operators see of the logs of a store: readings, lists and removals. An
// [Inspector] is a store that operators can ask, and a [Match] chooses logs by their keys. A
// [Reading] says what a log has used, its history, and what it would answer.
package inspect
