// Package envoydump reads what Envoy's admin port shows: the configuration, the clusters, switches at
// run time, counters and certificates. [Ask] asks a live Envoy, [Read] reads a saved /config_dump. The
// types have the names of Envoy's messages, and only the fields that checks use.
//
// A dump of a large mesh has tens of MB. All of it is text from outside: escape it before a person sees it.
package envoydump
