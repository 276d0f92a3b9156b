// Package client calls running instances, for the commands of rls. [New] makes a [Client] of the
// admin ports that an operator names, and [AskAll] asks all of them at once and merges their JSON.
// It has addresses, tokens, refusals, following of live pages, and missing instances ([Partial]).
// [Dial] calls the port that Envoy calls.
package client
