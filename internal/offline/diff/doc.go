// Package diff compares two sets of rules and tiers, and says what changes in meaning. [Compare]
// makes a [Report] of each [Change] of rules, matches, tiers and subjects, each with its [Verdict]:
// stricter, looser or both. It writes the report as text and JSON, and [Report.AddLive] adds
// callers of a running service. It reads no files and knows no YAML: its caller has loaded both
// sets.
//
// # What is compared
//
//   - The rules of one position, which is a domain and a path, by what they mean. How they are
//     written, in which file and in which order, makes no difference. [Change] has one part of a
//     rule that is different.
//   - Which rule a descriptor gets. [Compare] walks the trees of both sets at once. At each level
//     it tries the values that the trees distinguish. These are each value, one value for each
//     pattern, one for each way in which two patterns fit the same value, and one that neither tree
//     has. So if a rule takes descriptors from another one, there is an example for this pair.
//   - The tiers, their subjects, the limits of these, and how many API keys there are, but never a
//     key.
//
// # Which history is kept
//
// A log has a name, and a request that names another log finds it empty. [Compare] asks package
// policy for the names of the logs of both sets, and says for each changed limit whether they are
// the same.
//
// # Verdicts
//
// A [Verdict] says whether a change denies more or less. It is certain: if it is [Stricter], every
// series of requests that passes the new rules passes the old ones. A change that is not comparable
// is [Both], such as 5 in a minute and 50 in an hour.
//
//   - Limits of one kind are compared, and a sliding log with a fixed window. Other kinds are [Both].
//   - How a log rounds times is left aside.
//   - Descriptors that get another rule are [Both].
//   - Other limits of a subject are [Both] under a rule whose counter is shared.
//   - Usage updates with charge: always can exceed a limit. So only limits that count each hit for the
//     same time or longer are compared. Other rules are assumed to get no calls with x-rls-end.
//   - A rule that leaves the scope region is stricter: it has one log for all regions.
//
// # A running service
//
// [Report.AddLive] adds the callers that would be denied, by the logs of a running service. It
// compares only limits that keep their logs.
package diff
