package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func digestOf(c *cli) *cobra.Command {
	return leaf("digest", "Read API keys from standard input, one a line, and print their digests for a tiers file.",
		"The key of the line 'Bearer K' is K, and so is that of K between white space.", func() error { return printDigests(c) })
}

// printDigests reads keys from standard input, so that they stay out of the shell's history and the
// process list. For each line it prints the digest that a request with this text in a header
// gets. If that is not the digest of the whole line, it says so on standard error.
func printDigests(c *cli) error {
	s, err := c.load()
	if err != nil {
		return err
	}
	secrets := s.NewSecrets(s.Secrets.Key)
	read := false
	for line, text := range keyLines(&err) {
		key := secrets.Key(text)
		if key == "" {
			continue
		}
		read = true
		fmt.Fprintln(&stdout, secrets.Digest(key))
		if key != text {
			fmt.Fprintf(os.Stderr, "rls: line %d: the digest is of the API key in the line, not of the whole line; a key ends at white space and does not include a scheme such as Bearer\n", line)
		}
	}
	if err != nil {
		return fmt.Errorf("reading keys from standard input: %w", err)
	}
	if !read {
		return usage(`digest: standard input holds no API key; write one a line: printf '%%s\n' "$KEY" | rls digest`)
	}
	return nil
}
