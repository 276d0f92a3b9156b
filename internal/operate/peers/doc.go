// Package peers lets the instances of a service ask each other, so that one console shows all of them.
// [Ask] asks all at once, and [Peers.Handler] answers. An instance finds the addresses of the others
// in Redis, where a program that may write can add any address. So neither side believes the other
// without proof, and no token or cookie is sent.
//
// # Proof
//
// A question and its answer are encrypted and authenticated (AES-256-GCM). The keys come from the
// secret of admin.peers_key_file, from 32 random bytes of the question, and from its direction (HKDF).
// So only an instance with the secret can read a question, or make an answer that opens. The question
// names the address that is asked and the time. The instance that is asked refuses other addresses,
// times more than half a minute away, and a question that it has seen. It answers only what reads.
package peers
