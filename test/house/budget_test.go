package house

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/test/tree"
)

// How many words the documentation may have. To write more in one place, write less in another.
const (
	allWords  = 42_000 // of all Markdown files
	userWords = 18_000 // of the pages in docs for users, without the generated ones
	adrWords  = 300    // of each architecture decision
)

// wordsOf are the bounds of the pages without front matter.
var wordsOf = map[string]int{"README.md": 450, "CONTRIBUTING.md": 1700, "CHANGELOG.md": 300}

// TestBudget counts words. Each page in docs has front matter that names its reader, the one question that
// it answers, and how many words that takes. docs/architecture.md has only its part of the total.
func TestBudget(t *testing.T) {
	all, users, budgets := 0, 0, 0
	for _, page := range pages(t) {
		text := tree.Read(t, page)
		all += len(strings.Fields(text))
		most := wordsOf[page]
		switch dir := filepath.Dir(page); {
		case page == "docs/architecture.md":
			continue
		case dir == "docs":
			front, body := frontMatter(text)
			for _, key := range []string{"title", "reader", "question", "words"} {
				if front[key] == "" {
					t.Errorf("%s: the front matter lacks %s", page, key)
				}
			}
			most, _ = strconv.Atoi(front["words"])
			text = body
			users += len(strings.Fields(body))
			budgets += most
		case dir == "docs/adr":
			most = adrWords
		}
		if n := len(strings.Fields(text)); n > most && most > 0 {
			t.Errorf("%s has %d words, more than its %d: remove what no reader acts on", page, n, most)
		}
	}
	if users < userWords/4 {
		t.Errorf("only %d words of pages for users were found", users)
	}
	if budgets > userWords {
		t.Errorf("the pages in docs may have %d words together, more than %d: lower a budget", budgets, userWords)
	}
	if all > allWords {
		t.Errorf("all Markdown files have %d words, more than %d", all, allWords)
	}
}

// frontMatter returns the lines "key: value" between the lines --- on top of a page, and the rest.
func frontMatter(text string) (front map[string]string, body string) {
	front = make(map[string]string)
	head, body, ok := strings.Cut(strings.TrimPrefix(text, "---\n"), "\n---\n")
	if !ok || !strings.HasPrefix(text, "---\n") {
		return front, text
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-z]+): *(.+)$`).FindAllStringSubmatch(head, -1) {
		front[m[1]] = m[2]
	}
	return front, body
}
