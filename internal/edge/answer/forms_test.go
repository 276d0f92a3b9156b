package answer

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/slidegate/slidegate/internal/core/decide"
	"github.com/slidegate/slidegate/internal/core/rules"
	"github.com/slidegate/slidegate/internal/core/verdict"
	"github.com/slidegate/slidegate/pkg/descriptors"
	"github.com/slidegate/slidegate/pkg/window"
	"github.com/slidegate/slidegate/pkg/window/calendar"
)

// friday is the clock of the tests.
func friday() time.Time { return time.Date(2026, 11, 27, 8, 30, 0, 0, time.UTC) }

const noRoom = "No room under rule per-key: 100 per 1m; try again in 13 s."

// TestBudgets: a denial says what is spent and what is reserved.
func TestBudgets(t *testing.T) {
	of := func(currency string, l window.Limit, cost uint64, d window.Decision) decide.LimitStatus {
		s := status("money", l.Hits, l.Window, d)
		s.Limit.Policy, s.Limit.Rate, s.Limit.Currency, s.Limit.Budget, s.Cost = l.Policy, l.Rate, currency, new(rules.Budget), cost
		return s
	}
	tokens, dollars := window.Limit{Hits: 1000, Window: time.Minute}, window.Limit{Hits: 500_000_000, Window: 30 * 24 * time.Hour}
	for _, tt := range []struct {
		s                decide.LimitStatus
		detail, document string
	}{
		{
			of("", tokens, 40, window.Decision{Remaining: 30, Reserved: 70, RetryAfter: 12 * time.Second}),
			"No room for 40 in the budget of rule money: 900 of 1000 used, 70 reserved; try again in 1 s.",
			`"limit":1000,"window":60,"cost":40,"spent":900,"reserved":70,"retry_after":1,`,
		},
		{
			of("", tokens, 1, window.Decision{Remaining: 300, Reserved: 700, HoldsFull: true, RetryAfter: 12 * time.Second}),
			"Already 20000 requests have reserved a part of the budget of rule money; try again in 1 s.",
			`"limit":1000,"window":60,"cost":1,"spent":0,"reserved":700,"retry_after":1,`,
		},
		{
			of("usd", dollars, 490_000_001, window.Decision{Remaining: 484_500_000, Reserved: 3_100_000, RetryAfter: 4 * time.Hour}),
			"No room for 490.000001 USD in the budget of rule money until Friday 12:30 UTC: 12.40 of 500.00 USD used, 3.10 reserved.",
			`"limit":500000000,"window":2592000,"currency":"usd","cost":490000001,"spent":12400000,"reserved":3100000,"retry_after":14400,`,
		},
		{
			of("usd", dollars, 500_000_001, window.Decision{Never: true, Remaining: 500_000_000}),
			"This request costs 500.000001 USD, more than is ever free under rule money: 500.00 USD per 30d.",
			`"limit":500000000,"window":2592000,"cost":500000001,`,
		},
		{
			of("eur", window.Limit{Policy: window.TokenBucket, Hits: 2_000_000, Rate: 10_000, Window: time.Second}, 2_500_000, window.Decision{Never: true}),
			"This request costs 2.50 EUR, more than is ever free under rule money: 0.01 EUR per 1s, bursts of 2.00 EUR.",
			`"limit":2000000,"policy":"token_bucket","window":200,"cost":2500000,`,
		},
		{
			of("", window.Limit{Hits: 1 << 53, Window: time.Hour}, 1<<53-1, window.Decision{Reserved: 2, Remaining: 1<<53 - 2, RetryAfter: time.Second}),
			"No room for 9007199254740991 in the budget of rule money: 0 of 9007199254740992 used, 2 reserved; try again in 1 s.",
			`"limit":9007199254740992,"window":3600,"cost":9007199254740991,"spent":0,"reserved":2,"retry_after":1,`,
		},
	} {
		v := verdictOf(tt.s)
		_, body := AppendDenial(nil, nil, v, About{Form: rules.FormOpenAI, Now: friday})
		if want := `{"error":{"message":"` + tt.detail + `","type":"tokens","param":null,"code":"rate_limit_exceeded"}}`; string(body) != want {
			t.Errorf("got %s, want %s", body, want)
		}
		if _, body = AppendDenial(nil, nil, v, About{Now: friday}); !json.Valid(body) || !strings.Contains(string(body), tt.document) {
			t.Errorf("got %s, want %s", body, tt.document)
		}
	}
}

// TestForms: each form has the body and the fields that its clients read.
func TestForms(t *testing.T) {
	undecided := status("per-key", 100, time.Minute, window.Decision{RetryAfter: time.Second})
	undecided.DecidedBy = verdict.ByRuleDeny
	tooLarge := &decide.Verdict{Decisive: -1}
	rpc := func(id, message, data string) string {
		return `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32029,"message":"` + message + `","data":{` + data + `}}}`
	}
	const above = "This request costs 101, more than is ever free under rule per-key: 100 per 1m."
	for _, tt := range []struct {
		form rules.Form
		v    *decide.Verdict
		mcp  string
		body string
	}{
		{rules.FormOpenAI, verdictOf(denied), "", `{"error":{"message":"` + noRoom + `","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{rules.FormOpenAI, verdictOf(undecided), "", `{"error":{"message":"Rule per-key cannot be checked now; try again in 1 s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{rules.FormOpenAI, verdictOf(counted("up", inFlight, window.Decision{RetryAfter: time.Minute})), "", `{"error":{"message":"No room under rule up: 20 requests in flight; try again in 1 s.","type":"requests","param":null,"code":"rate_limit_exceeded"}}`},
		{rules.FormAnthropic, verdictOf(denied), "", `{"type":"error","error":{"type":"rate_limit_error","message":"` + noRoom + `"}}`},
		{rules.FormAnthropic, tooLarge, "", `{"type":"error","error":{"type":"rate_limit_error","message":"` + detailBeyond + `"}}`},
		{rules.FormMCP, verdictOf(denied), `{"id":7,"method":"tools/call"}`, rpc("7", noRoom, `"rule":"per-key","retryAfterMs":12300,"retry":true`)},
		{rules.FormMCP, verdictOf(denied), `{"id":"a-1"}`, rpc(`"a-1"`, noRoom, `"rule":"per-key","retryAfterMs":12300,"retry":true`)},
		{rules.FormMCP, verdictOf(never), `{"id":1.5}`, rpc("1.5", above, `"rule":"per-key","retry":false`)},
		{rules.FormMCP, tooLarge, `{"id":null}`, rpc("null", detailBeyond, `"retry":false`)},
		{rules.FormMCP, verdictOf(denied), `{"id":"</script>\u0000\""}`, rpc(`"\u003c/script\u003e\u0000\""`, noRoom, `"rule":"per-key","retryAfterMs":12300,"retry":true`)},
		// What is no id.
		{rules.FormMCP, verdictOf(denied), ``, rpc("null", noRoom, `"rule":"per-key","retryAfterMs":12300,"retry":true`)},
		{rules.FormMCP, verdictOf(denied), `{"id":7`, rpc("null", noRoom, `"rule":"per-key","retryAfterMs":12300,"retry":true`)},
		{rules.FormMCP, verdictOf(denied), `{"id":{"a":[1]}}`, rpc("null", noRoom, `"rule":"per-key","retryAfterMs":12300,"retry":true`)},
	} {
		fields, body := AppendDenial(nil, nil, tt.v, About{Form: tt.form, MCP: tt.mcp, Now: friday})
		if diff := cmp.Diff(tt.body, string(body)); diff != "" || !json.Valid(body) {
			t.Errorf("%v, %q: valid %v (-want +got):\n%s", tt.form, tt.mcp, json.Valid(body), diff)
		}
		if diff := cmp.Diff([]Header{{"content-type", "application/json"}}, fields); diff != "" {
			t.Errorf("%v: fields (-want +got):\n%s", tt.form, diff)
		}
	}
}

// TestFormGRPC reads the details with the protobuf library.
func TestFormGRPC(t *testing.T) {
	hourly := status("hourly", 1, time.Hour, window.Decision{RetryAfter: time.Hour})
	for _, tt := range []struct {
		v              *decide.Verdict
		pushback, text string
		delay          time.Duration // zero: none
	}{
		{verdictOf(denied), "12300", noRoom, 12300 * time.Millisecond},
		{verdictOf(hourly), "-1", "The budget of rule hourly is used up until Friday 09:30 UTC: 1 per 1h.", time.Hour},
		{verdictOf(never), "-1", "This request costs 101, more than is ever free under rule per-key: 100 per 1m.", 0},
		{&decide.Verdict{Decisive: -1}, "-1", detailBeyond, 0},
	} {
		fields, body := AppendDenial(nil, []byte("before "), tt.v, About{Form: rules.FormGRPC, Now: friday})
		if string(body) != "before "+tt.text {
			t.Errorf("body %q, want %q", body, tt.text)
		}
		if len(fields) != 3 || fields[1] != (Header{"grpc-retry-pushback-ms", tt.pushback}) || fields[2].Name != "grpc-status-details-bin" {
			t.Fatalf("%s: fields %q", tt.text, fields)
		}
		encoded, err := base64.RawStdEncoding.DecodeString(fields[2].Value)
		st := new(spb.Status)
		if err == nil {
			err = proto.Unmarshal(encoded, st)
		}
		if err != nil || st.GetCode() != 8 || st.GetMessage() != tt.text {
			t.Fatalf("%v, %v, want code 8 and the text %q", st, err, tt.text)
		}
		var delay time.Duration
		info := new(errdetails.RetryInfo)
		for _, d := range st.GetDetails() {
			if err := d.UnmarshalTo(info); err != nil {
				t.Fatal(err)
			}
			delay = info.GetRetryDelay().AsDuration()
		}
		if delay != tt.delay {
			t.Errorf("%s: RetryInfo %v, want %v", tt.text, delay, tt.delay)
		}
	}
}

// TestFormOfARule: the body of the rule goes before the form of the route, and a text is not used for a
// limit that could not be checked.
func TestFormOfARule(t *testing.T) {
	const text = "a text"
	for name, tt := range map[string]struct {
		denial    rules.Denial
		undecided bool
		want      string // the beginning of the body
	}{
		"none":                {rules.Denial{}, false, `{"error":`},
		"a form":              {rules.Denial{Form: rules.FormAnthropic}, false, `{"type":"error"`},
		"problem":             {rules.Denial{Form: rules.FormProblem}, false, `{"type":"https://iana.org`},
		"a text":              {rules.Denial{Body: text, ContentType: "text/x"}, false, text},
		"a form, undecided":   {rules.Denial{Form: rules.FormAnthropic}, true, `{"type":"error"`},
		"a text, undecided":   {rules.Denial{Body: text, ContentType: "text/x"}, true, `{"error":`},
		"a text named openai": {rules.Denial{Body: "openai", ContentType: "text/x"}, false, "openai"},
	} {
		s := status("per-key", 100, time.Minute, window.Decision{RetryAfter: time.Second})
		s.Rule.Answer.Denial = tt.denial
		if tt.undecided {
			s.DecidedBy = verdict.ByRuleDeny
		}
		if _, body := AppendDenial(nil, nil, verdictOf(s), About{Form: rules.FormOpenAI}); !strings.HasPrefix(string(body), tt.want) {
			t.Errorf("%s: %s, want %s…", name, body, tt.want)
		}
		if own, want := RuleHasBody(verdictOf(s)), tt.denial.Form != 0 || tt.denial.Body != "" && !tt.undecided; own != want {
			t.Errorf("%s: a body of its own: %v, want %v", name, own, want)
		}
	}
}

// TestLongWaits: a budget that is used up has another text than clients that are too fast, and an end
// by the clock of the calendar.
func TestLongWaits(t *testing.T) {
	monday := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC).Sub(friday())
	wait := func(s decide.LimitStatus, d time.Duration) decide.LimitStatus {
		s.Decision = window.Decision{RetryAfter: d, UnitAfter: d, ResetAfter: d}
		return s
	}
	daily := status("daily", 5, 24*time.Hour, window.Decision{})
	monthly := october(window.Decision{})
	var err error
	if monthly.Limit.Calendar, err = calendar.New(calendar.Spec{Unit: "month", TimeZone: "Europe/Berlin"}); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		s    decide.LimitStatus
		want string
	}{
		"too fast":                 {wait(daily, 2*time.Minute), "No room under rule daily: 5 per 1d; try again in 120 s."},
		"rounded up to a minute":   {wait(daily, 2*time.Minute+time.Second+1), "The budget of rule daily is used up until Friday 08:33 UTC: 5 per 1d."},
		"the store's clock":        {wait(daily, 3*time.Minute+time.Second), "The budget of rule daily is used up until Friday 08:33 UTC: 5 per 1d."},
		"on Monday":                {wait(monthly, monday), "The budget of rule monthly is used up until Monday 09:00 CET: 10000 per month."},
		"in another week":          {wait(monthly, monday+7*24*time.Hour), "The budget of rule monthly is used up until 7 December 2026 09:00 CET: 10000 per month."},
		"a calendar, soon":         {wait(monthly, time.Minute), "The budget of rule monthly is used up: 10000 per month; try again in 60 s."},
		"a calendar, in two hours": {wait(monthly, 2*time.Hour), "The budget of rule monthly is used up until Friday 11:30 CET: 10000 per month."},
	} {
		if got := string(appendDetail(nil, &tt.s, friday)); got != tt.want {
			t.Errorf("%s: got  %s\nwant %s", name, got, tt.want)
		}
	}
	if got := denialOf(verdictOf(wait(daily, time.Hour))); !strings.Contains(got, `"detail":"The budget of rule daily is used up: 5 per 1d; try again in 3600 s."`) {
		t.Errorf("a problem document gives the wait in seconds: %s", got)
	}
}

func TestFormOf(t *testing.T) {
	for want, texts := range map[rules.Form][]string{
		rules.FormUnset:  {"api_key=openai", "form=contact", "form"},
		rules.FormOpenAI: {"api_key=k", "form=openai"},
		rules.FormMCP:    {"api_key=k,form=mcp", "form=openai"},
	} {
		var all []decide.Descriptor
		for _, text := range texts {
			var d decide.Descriptor
			for one := range strings.SplitSeq(text, ",") {
				key, value, _ := strings.Cut(one, "=")
				d.Entries = append(d.Entries, descriptors.Entry{Key: key, Value: value})
			}
			all = append(all, d)
		}
		if got := FormOf(all); got != want {
			t.Errorf("%q: %v, want %v", texts, got, want)
		}
	}
}
