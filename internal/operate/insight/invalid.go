package insight

// An InvalidError says what is wrong with a question or a reset, and what to write instead. It
// repeats no API key.
type InvalidError struct{ Text string }

func (e *InvalidError) Error() string { return e.Text }
