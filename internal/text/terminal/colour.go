package terminal

// Colours writes text in colour if true, and unchanged if false.
type Colours bool

func (c Colours) paint(code, text string) string {
	if !c || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold returns text in bold.
func (c Colours) Bold(text string) string { return c.paint("1", text) }

// Red returns text in red: denied, or wrong.
func (c Colours) Red(text string) string { return c.paint("1;31", text) }

// Green returns text in green: there is room.
func (c Colours) Green(text string) string { return c.paint("32", text) }

// Yellow returns text in yellow: near a limit, or to be noticed.
func (c Colours) Yellow(text string) string { return c.paint("33", text) }
