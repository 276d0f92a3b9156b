// Package events reports that a budget is nearly spent, or spent: by a line of the log, a
// metric, and a webhook. [Events] finds out when the usage of a log reaches one of [Thresholds]. It
// announces that once for each log and threshold, until usage falls below it or the period is over.
// [Webhook] delivers announcements by HTTP as Standard Webhooks say (standardwebhooks.com).
//
// # Identity
//
// All instances give one event the same id: the hash of the name of the log, its limit, the threshold
// and the period. So a receiver can drop what it has. A window that moves has periods too, for this
// alone: those in which its length divides time.
//
// # Bounds
//
// An [Events] remembers [MaxLogs] logs. Of more, it forgets any, and may announce those again with the
// same id. A [Webhook] holds [MaxQueue] events; of more, it drops the oldest and counts it. What waits
// at the end of the process gets one more attempt, [flushTime] in all.
//
// Events have ids of subjects, digests of keys and masked addresses, never keys.
package events
