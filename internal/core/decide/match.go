package decide

// The bounds on the steps of matching, for all descriptors of a request together; see
// [descriptors.Tree.MatchWithin].
const (
	// FewSteps is for the goroutine that reads a connection, so that one match does not delay the
	// other calls: less than 0.1 ms.
	FewSteps = 1 << 16
	// MostSteps is for a separate goroutine: about 4 ms, such as 1,000 wildcards that are
	// searched in a value of 4 KiB.
	MostSteps = 1 << 22
)

// match finds the rule of each descriptor, and the rules that others replace. It reports false if
// that takes more than FewSteps and wait is false. More than MostSteps exceed a bound: a request
// whose rules are unknown must not pass as a request without rules.
func (c *Call) match(wait bool) (ok bool) {
	req, v := &c.req, &c.verdict
	steps := FewSteps
	if wait {
		steps = MostSteps
	}
	for i := range req.Descriptors {
		// Without an ending, a client may have sent the value that ends streams in a header.
		if desc, m := &req.Descriptors[i], &v.Matches[i]; !desc.Ends || req.Ending == "" {
			m.Attempts = c.domain.CountAttempts(desc.Entries)
			if m.Rule, _, steps = c.domain.Tree.MatchWithin(m.Limited(desc.Entries), steps); steps < 0 {
				break
			}
		}
	}
	if steps < 0 {
		if !wait {
			return false
		}
		c.exceed("its values are too long for so many wildcards: rls validate says what they cost")
	}
	if !c.domain.Replaces {
		return true
	}
	for i := range v.Matches {
		// A limit that came with the request has no name and replaces nothing.
		if v.Matches[i].Rule == nil || req.Descriptors[i].Override != nil {
			continue
		}
		for _, name := range v.Matches[i].Rule.Replaces {
			for j := range v.Matches {
				if r := v.Matches[j].Rule; r != nil && r.WrittenName() == name && req.Descriptors[j].Override == nil {
					v.Matches[j].ReplacedBy = v.Matches[i].Rule
				}
			}
		}
	}
	return true
}
