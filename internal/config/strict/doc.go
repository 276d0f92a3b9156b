// Package strict reads YAML into Go structs and reports everything that does not fit, each problem
// with its file, line, path and message. It has documents and nodes, keys, scalars (numbers,
// durations such as 15s, the truth words of YAML 1.1), and values of JSON. It also has positions,
// paths, quotes and suggestions ("did you mean") for messages. It knows nothing of Slidegate.
//
// The YAML library parses a file into nodes, and a [Decoder] walks them. No decoder of the
// library reports unknown keys, duplicate keys, wrong types, missing values and bad values
// together:
//
//	rules.yaml:12: descriptors[route=search].rate_limit.unit: unknown unit "minutes", did you mean "minute"?
//
// # Terms
//
//   - A [Problem] is one mistake. A [Report] collects problems, and [Problems] is the error
//     that holds them in the order of the files.
//   - A [Position] is the line and the [Path] of a value.
//   - A [Field] is a value with its position. A struct names its keys by yaml tags.
//
// If a file is not YAML, [Parse] reports its first problem only, since the rest of the file
// cannot be trusted. Its message does not repeat the text of the file, which may be secret.
package strict
