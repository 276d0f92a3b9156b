package main

import "os"

// colours writes text in colour if true, and unchanged if false.
type colours bool

// coloursOf returns true for a terminal that has colours, unless NO_COLOR is set.
func coloursOf(f *os.File) colours {
	info, err := f.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return colours(terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb")
}

func (c colours) paint(code, text string) string {
	if !c || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (c colours) bold(text string) string   { return c.paint("1", text) }
func (c colours) red(text string) string    { return c.paint("1;31", text) }
func (c colours) green(text string) string  { return c.paint("32", text) }
func (c colours) yellow(text string) string { return c.paint("33", text) }
