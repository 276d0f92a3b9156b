package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/slidegate/slidegate/internal/config"
	"github.com/slidegate/slidegate/internal/config/settings"
	"github.com/slidegate/slidegate/test/servers"
	"github.com/slidegate/slidegate/test/tree"
)

// TestExamples loads the YAML examples of all pages for users: as rules, as tiers or as
// settings, as their first key says.
func TestExamples(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		path := filepath.Join(dir, name)
		tree.Write(t, path, text)
		return path
	}
	authority := servers.NewAuthority(t)
	ca, cert, key := authority.ClientFiles()
	_, serverCert, serverKey := authority.ServerFiles()
	// The replacer tries the names in order, so the directories come last.
	files := strings.NewReplacer(
		"/etc/slidegate/ca.pem", ca,
		"/etc/slidegate/client.pem", cert, "/etc/slidegate/client-key.pem", key,
		"/etc/slidegate/server.pem", serverCert, "/etc/slidegate/server-key.pem", serverKey,
		"/etc/slidegate/", dir+"/", "/var/lib/slidegate/", dir+"/",
	)
	for _, name := range []string{"redis-password", "sentinel-password", "postgres-password", "secret-new", "secret-old"} {
		put(name, "the secret of "+name)
	}
	put("tokens", "act 0123456789abcdef0123456789abcdef\n")
	sections := make(map[string]bool)
	for _, d := range settings.Describe(settings.Default()) {
		section, _, _ := strings.Cut(d.Path, ".")
		sections[section] = true
	}
	regions, _, err := settings.Load(put("regions.yaml", "store: {type: redis, scopes: {global: {redis: {url: redis://127.0.0.1:6380}}}}"), nil)
	if err != nil {
		t.Fatal(err)
	}
	// Tests of rules, a mapping file of rls replay, and Traefik begin with the same keys.
	others := regexp.MustCompile(`(?m)^tests:|^descriptors:\n *- \[|^ +(routers|middlewares):`)
	count := make(map[string]int)
	for _, page := range pages(t) {
		if dir := filepath.Dir(page); page != "README.md" && dir != "docs" && dir != "docs/reference" {
			continue
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(tree.Read(t, page), -1) {
			s, err := regions, error(nil)
			example := files.Replace(m[1])
			if strings.HasPrefix(example, "  - key:") { // more rules for an example before it
				example = "domain: edge\ndescriptors:\n" + example
			}
			key := regexp.MustCompile(`(?m)^[^#\n].*`).FindString(example)
			section, _, _ := strings.Cut(key, ":")
			kind := "settings"
			switch {
			case others.MatchString(example):
				continue
			case section == "domain":
				kind, s.Rules.Path = "rules", put("rules.yaml", example)
				_, err = config.Load(s)
			case section == "tiers" && strings.Contains(example, "\ndefault:"):
				kind, s.Tiers.Path = "tiers", put("tiers.yaml", example)
				_, err = config.Load(s)
			case section == "rules" && strings.Contains(example, "by_tier"):
				kind, s.Rules.TiersOf = "tiers of rules", put("tiers-of.yaml", example)
				_, err = config.Load(s)
			case sections[section]:
				_, _, err = settings.Load(put("settings.yaml", example), nil)
			default:
				continue // for another program, or part of an example
			}
			if err != nil {
				t.Errorf("%s:\n%s\n%s", page, m[1], err)
			}
			count[kind]++
		}
	}
	if count["settings"] < 8 || count["rules"] < 18 || count["tiers"] < 1 {
		t.Errorf("examples: %v", count)
	}
}

// pages returns every page of the project's documentation.
func pages(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && len(name) > 2 && strings.HasPrefix(name, ".") {
			return fs.SkipDir // tools and git, not ours
		}
		if strings.HasSuffix(path, ".md") {
			all = append(all, strings.TrimPrefix(path, "../../"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLinks follows every relative link of the documentation, and checks that the
// page has the heading that the link names.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	headings := make(map[string][]string)
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(tree.Read(t, page), -1) {
			target := page
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(page), m[1])
			}
			if _, err := os.Stat(filepath.Join("../..", target)); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
				continue
			}
			if m[2] != "" && headings[target] == nil {
				headings[target] = anchors(tree.Read(t, target))
			}
			if m[2] != "" && !slices.Contains(headings[target], m[2]) {
				t.Errorf("%s links to %s%s, but the page has no such heading", page, target, m[2])
			}
		}
	}
}

var (
	heading        = regexp.MustCompile("(?m)^#+ (.*)$")
	outsideAnchors = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// anchors returns the anchor that GitHub makes of each heading of a page.
func anchors(text string) []string {
	var all []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		name := outsideAnchors.ReplaceAllString(strings.ToLower(m[1]), "")
		all = append(all, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return all
}

// tests returns the names of all tests and fuzz targets of the project.
func tests(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "grep", "-rhoE", `^func (Test|Fuzz)[A-Za-z0-9_]+`, "--include=*_test.go", "../..").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(strings.ReplaceAll(string(out), "func ", ""))
}

// namesTests checks that text, a part of page, names at least one test, and that
// every test which it names exists.
func namesTests(t *testing.T, page, text string, have []string) {
	t.Helper()
	names := regexp.MustCompile("`((Test|Fuzz)[A-Za-z0-9_]+)`").FindAllStringSubmatch(text, -1)
	if len(names) == 0 {
		t.Errorf("%s: no test beside %s", page, text)
	}
	for _, m := range names {
		if !slices.Contains(have, m[1]) {
			t.Errorf("%s names %s, but no test has this name", page, m[1])
		}
	}
}

// promises are the promises of docs/guarantees.md by their first words there, with the tests that
// hold them.
var promises = map[string]string{
	"Never more than the limit.":                      "TestExactlyTheLimitPasses TestNoWindowHoldsMoreThanTheLimit TestABurstOverASecondsEdge TestInstancesShareTheLimit TestRegions",
	"Each policy keeps its bound.":                    "TestContract TestPolicies TestPeriod TestPeriodsAreThoseOfAWalk TestAnotherBillingDay TestQuotaOfABillingMonth TestFixedWindowsAreThoseOfTheReference TestWorstOfCounter TestInFlight TestLedger TestKills TestFailover",
	"Retry-After is long enough.":                     "TestRetryAfterIsTrue TestRetryAfterOfSeveralCosts TestWaitsBesideLeases TestContract TestFieldsOfPolicies TestRetryJitter",
	"A denied request uses no quota.":                 "TestADenialChargesNothing TestContract TestUsageReports",
	"All limits or none.":                             "TestADenialChargesNothing TestAcrossSlots TestAllOrNothingOnEveryTopology TestMigrationUnderLoad TestAllOrNothingAcrossRegions",
	"Charged once, and in time.":                      "TestNoSecondCharge TestLateCalls TestLateCallsAreNotCharged",
	"A retry with an idempotency key is charged once": "TestOnce TestChargeOnce TestChargeOnceAtOnce TestOnceAcrossSlots TestContractOnce",
	"Two customers never share a limit per key.":      "FuzzKey",
	"Envoy gets an answer in time.":                   "TestAStall TestRedisStalls TestRedisUnreachable TestRedisRestarts TestBreaker TestStoreOnError TestInstances TestQuotasFollowTheNumber TestRegionCutOff TestGlobalStoreSlow",
	"Known customers keep their tier":                 "TestSourceFaults TestManyCustomersAtOnce",
	"The last good rules stay active":                 "TestXDSServerRestarts TestXDSServerUnavailableAtStart",
	"A restart loses no call.":                        "TestSIGTERMLetsCallsFinish TestSIGTERMAnswersDuringTheDelay TestRestartsUnderLoad",
	"A tier change takes effect at the next request":  "TestATierChangeCountsAtTheNextRequest TestChangesAreTold TestHistoryIsKept",
	"A wrong file changes nothing.":                   "TestReloadUnderLoad TestABadStart TestEveryProblemAtOnce TestRulesOfAnXDSServer TestUpdatesUnderLoad",
	"One image line replaces envoyproxy/ratelimit":    "TestCorpus TestMatchEqualsNaive TestDeployments TestEveryVariable TestEnvironments TestAnswersOfReference TestReferenceSideBySide TestLinesOfTheReference",
	"A comparison changes nothing.":                   "TestCompare TestAServiceThatHangs TestCompareWithAReferenceThatHangs",
	"An API key is hashed":                            "TestAnAPIKeyIsNowhere TestAPIKeysReachNothing TestKeysLeaveNoTrace TestViewsShowNoKey",
	"One credential has one quota":                    "TestOneCredentialHasOneQuota TestBothWaysHaveOneQuota TestWhiteSpaceAroundAKey FuzzCredential TestAValueThatIsNotUTF8IsLimited TestEverySpellingOfAPathIsLimited TestTheKeyThatCountsIsTheKeyThatIsServed FuzzShouldRateLimit",
	"Only Slidegate says who calls.":                  "TestOnlyRlsSaysWhoCalls TestCredentialsStayHere TestWhoMayPass TestOneHopAnswersAlike TestNamesThatWouldBreakAResponse TestNothingOfARequestComesBack",
	"A client cannot exhaust Slidegate.":              "TestFloods TestRunning FuzzConnection TestBound TestLeasesAreBounded TestMemoryIsBounded TestOverridesMakeNoSeries TestNamesAreBounded",
}

// TestPromises compares docs/guarantees.md with promises: each promise of the page has tests that
// exist. The page has no more promises and exceptions than a reader can remember.
func TestPromises(t *testing.T) {
	const page = "docs/guarantees.md"
	have := tests(t)
	parts := regexp.MustCompile(`(?m)^\*\*([^*]+)\*\*`).FindAllStringSubmatchIndex(tree.Read(t, page), -1)
	text, exceptions := tree.Read(t, page), 0
	found := make(map[string]bool)
	for i, m := range parts {
		title, end := text[m[2]:m[3]], len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		found[title] = true
		names := strings.Fields(promises[title])
		if len(names) == 0 {
			t.Errorf("%s: promises has no tests of %q", page, title)
		}
		for _, name := range names {
			if !slices.Contains(have, name) {
				t.Errorf("promises names %s for %q, but no test has this name", name, title)
			}
		}
		of := strings.Count(text[m[1]:end], "\n- ")
		if exceptions += of; of > 4 {
			t.Errorf("%s: the promise %q has %d exceptions, want at most 4", page, title, of)
		}
	}
	for title := range promises {
		if !found[title] {
			t.Errorf("%s does not promise %q", page, title)
		}
	}
	if len(parts) > 20 || exceptions > 20 {
		t.Errorf("%s has %d promises and %d exceptions, want at most 20 of each", page, len(parts), exceptions)
	}
}

// TestThreats checks that test/THREATS.md names tests beside each threat.
func TestThreats(t *testing.T) {
	const page, header = "test/THREATS.md", "| attack | answer | tests |\n"
	have := tests(t)
	count := 0
	for _, table := range strings.Split(tree.Read(t, page), header)[1:] {
		table, _, _ = strings.Cut(table, "\n\n")
		rows := strings.Split(strings.TrimSpace(table), "\n")[1:]
		count += len(rows)
		for _, row := range rows {
			namesTests(t, page, row, have)
		}
	}
	if count < 8 {
		t.Errorf("%s has %d rows, want its tables", page, count)
	}
}

// TestDependencies checks that a comment above each direct dependency says what it is for. The modules
// below test and contrib need none for what go.mod of the project explains.
func TestDependencies(t *testing.T) {
	files, err := filepath.Glob("../../*/*/go.mod")
	if err != nil || len(files) < 4 {
		t.Fatalf("modules below test and contrib: %v, %v", files, err)
	}
	direct := regexp.MustCompile(`^(?:\t|require |tool )([a-z]\S+?)(?:/cmd/\S+| v\S+)$`)
	explained := map[string]bool{strings.TrimSuffix(module, "/"): true, module + "client": true}
	for _, file := range append([]string{"../../go.mod"}, files...) {
		above := ""
		for line := range strings.Lines(tree.Read(t, strings.TrimPrefix(file, "../../"))) {
			line = strings.TrimSuffix(line, "\n")
			if m := direct.FindStringSubmatch(line); m != nil && !explained[m[1]] {
				if !strings.HasPrefix(strings.TrimSpace(above), "// ") {
					t.Errorf("%s: no comment above %s says what it is for", file, m[1])
				}
				explained[m[1]] = true
			}
			above = line
		}
	}
	if len(explained) < 40 {
		t.Errorf("only %d dependencies are explained: %v", len(explained), explained)
	}
}

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

// dictionary has words that no name has, because each has had several meanings, and what to say
// instead. The rule Dictionary of the prose linter, in .vale, does the same for sentences.
var dictionary = map[string]string{
	"beside":   "with, next to",
	"blind":    "denied undecided",
	"crowded":  "queue full, too large",
	"deaf":     "unavailable",
	"debt":     "excess",
	"debts":    "excess",
	"door":     "handler",
	"doors":    "handlers",
	"doubt":    "ambiguous outcome",
	"doubts":   "ambiguous outcomes",
	"ender":    "releaser",
	"endless":  "without end signal",
	"foreign":  "corrupt",
	"hear":     "receive",
	"hears":    "receives",
	"held":     "released, cached, locked",
	"keeper":   "inspector",
	"keepers":  "inspectors",
	"keeping":  "bulk call",
	"lot":      "chunk",
	"lots":     "chunks",
	"meet":     "match, apply",
	"meeting":  "match",
	"meetings": "matches",
	"meets":    "matches, applies",
	"owed":     "unpaid, outstanding",
	"owes":     "unpaid, outstanding",
	"owing":    "unpaid, outstanding",
	"own":      "override, local",
	"parties":  "subjects, callers",
	"party":    "subject, caller",
	"piece":    "sub-request, part",
	"pieces":   "sub-requests, parts",
	"place":    "waiter, position, location, shard",
	"places":   "waiters, positions, locations, shards",
	"receipt":  "idempotency record",
	"receipts": "idempotency records",
	"share":    "fraction, percentage, fallback quota, one log",
	"shares":   "fractions, percentages, fallback quotas",
	"side":     "participant",
	"sides":    "participants",
	"spot":     "position",
	"spots":    "positions",
	"surplus":  "unused",
	"tell":     "report",
	"tells":    "reports",
	"those":    "which ones",
	"thrown":   "corrupt",
	"told":     "reported",
	"torn":     "corrupt",
	"untold":   "unknown, unreported",
}

// allowed are names that have such a word all the same, by package and name, with the reason.
var allowed = map[string]string{
	"limiter.ShareThreshold": "the setting of envoyproxy/ratelimit",
	"middleware.Tell":        "the library has it for its users",
	"redislimit.held":        "likewise",
	"rules.ShareThreshold":   "the setting of envoyproxy/ratelimit",
}

var words = regexp.MustCompile(`[A-Z]+(?:[^A-Za-z]|$)|[A-Z]*[a-z]+|[A-Z]+`)

// TestDictionary checks the names that production code declares.
func TestDictionary(t *testing.T) {
	for _, root := range []string{"client", "cmd", "internal", "limiter", "pkg"} {
		err := filepath.WalkDir(filepath.Join("..", "..", root), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && (entry.Name() == "testdata" || strings.HasSuffix(entry.Name(), "test") && entry.Name() != "ruletest"):
				return filepath.SkipDir // helpers of tests
			case entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
				return nil
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			for _, name := range declared(file) {
				for _, word := range words.FindAllString(name, -1) {
					say, bad := dictionary[strings.ToLower(word)]
					if bad && allowed[file.Name.Name+"."+name] == "" {
						t.Errorf("%s: the name %s has the word %s: say %s", path, name, strings.ToLower(word), say)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// declared returns the names that a file declares, local ones too.
func declared(file *ast.File) []string {
	var all []string
	add := func(names ...*ast.Ident) {
		for _, n := range names {
			all = append(all, n.Name)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.Field:
			add(n.Names...)
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(name)
				}
			}
		case *ast.RangeStmt:
			for _, left := range []ast.Expr{n.Key, n.Value} {
				if name, ok := left.(*ast.Ident); ok && n.Tok == token.DEFINE {
					add(name)
				}
			}
		}
		return true
	})
	return all
}
