// Package script has the Lua scripts that decide in Redis, and the messages to and from them: names
// of keys, packed checks of a [Group], instants, and replies. It sends EVALSHA, and EVAL if a
// server does not know the script.
package script
