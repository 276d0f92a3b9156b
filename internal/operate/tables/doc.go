// Package tables writes the answers of the admin API for a terminal, as tables and sentences:
// usage, denials, tops, resets, the record of a customer, and the reply to a live request.
package tables
