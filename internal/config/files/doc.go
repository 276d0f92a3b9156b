// Package files finds and reads the files of rules and tiers. [List] walks a directory, follows
// symbolic links, and says which files a path of rules stands for; [CheckDirectory] refuses a wrong
// path. [Read] and [ReadFile] read a regular file up to a bound in bytes ([TooLarge]), without a
// byte-order mark of its text. [Replace] writes a file that is complete at every moment.
package files
