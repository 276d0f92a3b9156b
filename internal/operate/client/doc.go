// Package client calls running instances, for the commands of rls. [New] makes a [Client] of the
// admin ports that an operator names. [AskAll] asks all of them at once, and [Merge] joins their
// denials. It has addresses, tokens, refusals, following of new denials, and missing instances
// ([Partial]). [Dial] calls the port that Envoy calls.
package client
