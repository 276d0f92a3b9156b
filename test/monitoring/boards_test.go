package monitoring

var (
	jobs      = variable{name: "job", label: "Job", query: "label_values(slidegate_build_info, job)", about: "The scrape job of rls"}
	instances = variable{name: "instance", label: "Instance", query: "label_values(slidegate_build_info{@job}, instance)", about: "Each is an rls"}
	domains   = variable{name: "domain", label: "Domain", query: "label_values(slidegate_decisions_total{@job}, domain)", about: "The domain of Envoy's filter"}
)

const (
	// asked counts the decisions of rules that count, without those that another rule denied.
	asked  = `slidegate_decisions_total{@,outcome=~"allowed|not_charged|repeated|denied|never"}`
	denied = `slidegate_decisions_total{@,outcome=~"denied|never"}`
	calls  = `{@,method=~".*(ShouldRateLimit|Authorization/Check)"}`
)

// boards are the dashboards of deploy/grafana.
var boards = []board{overview, rules, store, envoy}

var overview = board{
	file: "overview.json", title: "Slidegate: overview",
	about:     "Is something wrong with Slidegate? Start here.",
	variables: []variable{jobs, instances},
	rows: []row{
		{title: "At a glance", height: 4, panels: []panel{
			{title: "Instances", about: "Instances that answer Prometheus.", unit: "short", kind: "stat", width: 4, queries: []query{{`count(slidegate_build_info{@}) or on () vector(0)`, "instances"}}},
			{title: "Decisions", about: "Descriptors decided in a second.", unit: "reqps", kind: "stat", width: 4, queries: []query{{`sum(rate(slidegate_decisions_total{@}[r]))`, "decisions"}}},
			{title: "Denied", about: "Share of the decisions that deny. Unlimited and refunded descriptors do not count.", unit: "percentunit", kind: "stat", width: 4, warn: .2, queries: []query{{`(sum(rate(` + denied + `[r])) or on () vector(0)) / (sum(rate(` + asked + `[r])) > 0) or on () vector(0)`, "denied"}}},
			{title: "Store", about: "Down: a server of the store fails in one of the instances. Open the dashboard of the store.", unit: "short", kind: "stat", width: 4, bad: 1, words: map[string]string{"0": "up", "1": "down"}, queries: []query{{`max(slidegate_store_down{@})`, "store"}}},
			{title: "Configuration", about: "Broken: newer files or rules were refused, and the last good ones are active. /rlconfig says why.", unit: "short", kind: "stat", width: 4, warn: 1, words: map[string]string{"0": "loaded", "1": "broken"}, queries: []query{{`max(slidegate_config_broken{@})`, "configuration"}}},
			{title: "Customer source", about: "Down: the source fails in one of the instances. Without a source outside of the process it is up.", unit: "short", kind: "stat", width: 4, bad: 1, words: map[string]string{"0": "up", "1": "down"}, queries: []query{{orNone(`max(slidegate_tiers_source_open{@})`, ""), "customer source"}}},
		}},
		{title: "Decisions", height: 8, panels: []panel{
			{title: "Decisions by outcome", about: "Descriptors decided in a second. docs/reference/metrics.md explains the outcomes.", unit: "reqps", stacked: true, queries: []query{{`sum by (outcome) (rate(slidegate_decisions_total{@}[r]))`, "{{outcome}}"}}},
			{title: "Denials by rule", about: "Descriptors denied in a second, the ten rules with most.", unit: "reqps", queries: []query{{orNone(`topk(10, sum by (rule) (rate(`+denied+`[r])))`, "rule"), "{{rule}}"}}},
			{title: "Denied share by rule", about: "Share of a rule's decisions that deny. Above the line the alert SlidegateManyDenials fires.", unit: "percentunit", warn: .2, queries: []query{{orNone(`topk(10, sum by (rule) (rate(`+denied+`[r])) / sum by (rule) (rate(`+asked+`[r])))`, "rule"), "{{rule}}"}}},
			{title: "Degraded answers", about: "Requests that were decided without the store, by the choice that decided.", unit: "reqps", warn: .001, queries: []query{{`sum by (choice) (rate(slidegate_degraded_answers_total{@}[r]))`, "{{choice}}"}}},
			{title: "Errors", about: "Decisions that the store could not make, calls that failed, and panics.", unit: "reqps", queries: []query{
				{orNone(`sum(rate(slidegate_decisions_total{@,outcome="error"}[r]))`, ""), "store could not decide"},
				{orNone(`sum(rate(slidegate_rpc_seconds_count{@,code!="OK"}[r]))`, ""), "failed calls"},
				{`sum(rate(slidegate_panics_total{@}[r]))`, "panics"},
			}},
			{title: "Mistakes in Envoy's configuration", about: "Requests for a domain without rules, ignored limits of descriptors, and misconfigured routes.", unit: "reqps", queries: []query{
				{`sum(rate(slidegate_unknown_domain_requests_total{@}[r]))`, "unknown domain"},
				{`sum(rate(slidegate_ignored_overrides_total{@}[r]))`, "ignored limit"},
				{orNone(`sum(rate(slidegate_authorizations_total{@,result="misconfigured"}[r]))`, ""), "misconfigured route"},
			}},
		}},
		{title: "Time and load", height: 8, panels: []panel{
			{title: "Time of a call", about: "Time of a gRPC call within rls. The lines are 15 ms (store.timeout) and 20 ms (the default deadline of Envoy's filter).", unit: "s", warn: .015, bad: .02, queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(slidegate_rpc_seconds_bucket` + calls + `[r])))`, "50 %"},
				{`histogram_quantile(0.99, sum by (le) (rate(slidegate_rpc_seconds_bucket` + calls + `[r])))`, "99 %"},
				{`histogram_quantile(0.999, sum by (le) (rate(slidegate_rpc_seconds_bucket` + calls + `[r])))`, "99.9 %"},
			}},
			{title: "Calls by code", about: "gRPC calls in a second by method and code.", unit: "reqps", queries: []query{{`sum by (method, code) (label_replace(rate(slidegate_rpc_seconds_count{@}[r]), "method", "$1", "method", ".*[.](.*)"))`, "{{method}} {{code}}"}}},
			{title: "Authorizations", about: "Authorizations in a second by result.", unit: "reqps", stacked: true, queries: []query{{orNone(`sum by (result) (rate(slidegate_authorizations_total{@}[r]))`, "result"), "{{result}}"}}},
			{title: "CPU", about: "CPU time of each instance; 1 is a whole CPU.", unit: "short", queries: []query{{`rate(process_cpu_seconds_total{@}[r])`, "{{instance}}"}}},
			{title: "Memory", about: "Resident memory of each instance.", unit: "bytes", queries: []query{{`process_resident_memory_bytes{@}`, "{{instance}}"}}},
			{title: "Resets by operators", about: "Resets of limits in the interval of the graph. The log and the console's audit say who and why.", unit: "short", queries: []query{
				{`sum(increase(slidegate_resets_total{@}[r]))`, "resets"},
			}},
			{title: "Lost spans", about: "Spans of traces that could not be sent in a second. Zero without OTEL_ variables.", unit: "ops", queries: []query{
				{orNone(`sum(rate(slidegate_spans_lost_total{@}[r]))`, ""), "lost"},
			}},
			{title: "Connections", about: "Connections to the gRPC port. None with grpc.transport standard.", unit: "short", queries: []query{{`sum by (instance) (slidegate_grpc_connections{@}) or on () vector(0)`, "{{instance}}"}}},
		}},
		{title: "Configuration and tiers", height: 8, panels: []panel{
			{title: "Reloads", about: "Reloads by result, in the interval of the graph.", unit: "short", queries: []query{{`sum by (result) (increase(slidegate_config_reloads_total{@}[r]))`, "{{result}}"}}},
			{title: "Answers about keys", about: "Whose a key is, by where the answer came from. stale and unavailable: the customer source fails.", unit: "reqps", stacked: true, queries: []query{{orNone(`sum by (from) (rate(slidegate_tiers_answers_total{@}[r]))`, "from"), "{{from}}"}}},
			{title: "Look-ups in the customer source", about: "Look-ups in a second by outcome.", unit: "reqps", queries: []query{{orNone(`sum by (outcome) (rate(slidegate_tiers_lookups_total{@}[r]))`, "outcome"), "{{outcome}}"}}},
			{title: "Time of the customer source", about: "Time of a question to the source.", unit: "s", queries: []query{
				{orNone(`histogram_quantile(0.5, sum by (le) (rate(slidegate_tiers_source_seconds_bucket{@}[r])))`, ""), "50 %"},
				{orNone(`histogram_quantile(0.99, sum by (le) (rate(slidegate_tiers_source_seconds_bucket{@}[r])))`, ""), "99 %"},
			}},
			{title: "Versions", about: "The version of each instance.", unit: "short", kind: "table", queries: []query{{`sum by (instance, version, go) (slidegate_build_info{@})`, ""}}},
		}},
	},
}

const chosen = `@,domain=~"$domain",rule=~"$rule"`

var rules = board{
	file: "rules.json", title: "Slidegate: rules",
	about: "What each rule decides. Values of requests appear only for rules with detailed_metric or value_to_metric, and never an API key.",
	variables: []variable{
		jobs, instances, domains,
		{name: "rule", label: "Rule", query: `label_values(slidegate_decisions_total{@job,domain=~"$domain"}, rule)`, about: "The name of the rule"},
	},
	rows: []row{
		{title: "Rules", height: 8, panels: []panel{
			{title: "Decisions by rule", about: "Descriptors decided in a second.", unit: "reqps", stacked: true, queries: []query{{`topk(20, sum by (domain, rule) (rate(slidegate_decisions_total{` + chosen + `}[r])))`, "{{domain}} {{rule}}"}}},
			{title: "Decisions by outcome", about: "All chosen rules together. docs/reference/metrics.md explains the outcomes.", unit: "reqps", stacked: true, queries: []query{{`sum by (outcome) (rate(slidegate_decisions_total{` + chosen + `}[r]))`, "{{outcome}}"}}},
			{title: "Denials by rule", about: "Descriptors denied in a second. never: the cost is above the limit, so waiting does not help.", unit: "reqps", queries: []query{{orNone(`sum by (rule, outcome) (rate(slidegate_decisions_total{`+chosen+`,outcome=~"denied|never"}[r]))`, "rule"), "{{rule}} {{outcome}}"}}},
			{title: "Denied share", about: "Share of a rule's decisions that deny. Above the line the alert SlidegateManyDenials fires.", unit: "percentunit", warn: .2, queries: []query{{orNone(`sum by (rule) (rate(slidegate_decisions_total{`+chosen+`,outcome=~"denied|never"}[r])) / sum by (rule) (rate(slidegate_decisions_total{`+chosen+`,outcome=~"allowed|not_charged|repeated|denied|never"}[r]))`, "rule"), "{{rule}}"}}},
			{title: "Denials by limit", about: "The ten limits that deny most: a rule can have several windows, and limits by tier.", unit: "reqps", queries: []query{{orNone(`topk(10, sum by (rule, tier, window) (rate(slidegate_limit_denials_total{`+chosen+`}[r])))`, "rule"), "{{rule}} {{tier}} {{window}}"}}},
			{title: "Near the limit", about: "Hits that had room above 80 % of their limit, for each request that the rule allowed. The line is that of the alert SlidegateNearLimit.", unit: "percentunit", warn: .5, queries: []query{{orNone(`sum by (rule) (rate(slidegate_near_limit_total{`+chosen+`}[r])) / (sum by (rule) (rate(slidegate_decisions_total{`+chosen+`,outcome="allowed"}[r])) > 0)`, "rule"), "{{rule}}"}}},
			{title: "The store could not decide", about: "Decisions by on_store_error, because the store could not decide.", unit: "reqps", warn: .001, queries: []query{{orNone(`sum by (rule) (rate(slidegate_decisions_total{`+chosen+`,outcome="error"}[r]))`, "rule"), "{{rule}}"}}},
		}},
		{title: "Requests in flight", height: 8, panels: []panel{
			{title: "Ends of requests", about: "Ends that Envoy reported, by result. held_nothing: the request was denied, or had no limit in flight.", unit: "reqps", queries: []query{{`sum by (result) (rate(slidegate_stream_ends_total{@}[r]))`, "{{result}}"}}},
			{title: "Misuses", about: "Calls that used in_flight rules in a way that cannot work. docs/advanced.md says what to change.", unit: "reqps", warn: .001, queries: []query{{`sum(rate(slidegate_in_flight_misuses_total{@}[r]))`, "misuses"}}},
		}},
		{title: "Budgets", height: 8, panels: []panel{
			{title: "Requests under budgets", about: "What became of their costs.", unit: "reqps", queries: []query{{orNone(`sum by (outcome) (rate(slidegate_budget_requests_total{`+chosen+`}[r]))`, "outcome"), "{{outcome}}"}}},
			{title: "Units of budgets", about: "Tokens, or millionths of the currency.", unit: "ops", queries: []query{{orNone(`sum by (outcome) (rate(slidegate_budget_units_total{`+chosen+`}[r]))`, "outcome"), "{{outcome}}"}}},
			{title: "Events of budgets", about: "Budgets of which 80 % or all is spent, and calls of the webhook by result.", unit: "short", queries: []query{
				{orNone(`sum by (threshold) (increase(slidegate_budget_events_total{`+chosen+`}[r]))`, "threshold"), "{{threshold}} %"},
				{orNone(`sum by (result) (increase(slidegate_webhook_events_total{@}[r]))`, "result"), "webhook: {{result}}"},
			}},
		}},
		{title: "Rules that only observe", height: 8, panels: []panel{
			{title: "Shadow decisions", about: "What rules in shadow mode would have decided.", unit: "reqps", width: 12, stacked: true, queries: []query{{orNone(`sum by (rule, outcome) (rate(slidegate_shadow_decisions_total{`+chosen+`}[r]))`, "rule"), "{{rule}} {{outcome}}"}}},
			{title: "Shadow denied share", about: "Share of its requests that the rule would deny if it were enforced.", unit: "percentunit", width: 12, queries: []query{{orNone(`sum by (rule) (rate(slidegate_shadow_decisions_total{`+chosen+`,outcome="denied"}[r])) / sum by (rule) (rate(slidegate_shadow_decisions_total{`+chosen+`}[r]))`, "rule"), "{{rule}}"}}},
		}},
		{title: "Subjects: values of rules with detailed_metric or value_to_metric", height: 9, panels: []panel{
			{title: "Decisions by value", about: "The ten values that ask most. Rules without detailed_metric or value_to_metric have none. API keys are never values.", unit: "reqps", width: 12, queries: []query{{orNone(`topk(10, sum by (rule, values) (rate(slidegate_detail_decisions_total{`+chosen+`}[r])))`, "values"), "{{rule}} {{values}}"}}},
			{title: "Denials by value", about: "The ten values that are denied most.", unit: "reqps", width: 12, queries: []query{{orNone(`topk(10, sum by (rule, values) (rate(slidegate_detail_decisions_total{`+chosen+`,outcome=~"denied|never|shadow_denied"}[r])))`, "values"), "{{rule}} {{values}}"}}},
			{title: "Denied most", about: "The values that were denied most in the time of the dashboard.", unit: "short", kind: "table", width: 12, queries: []query{{orNone(`topk(20, sum by (domain, rule, values) (increase(slidegate_detail_decisions_total{`+chosen+`,outcome=~"denied|never|shadow_denied"}[$__range])))`, "values"), ""}}},
		}},
	},
}

var store = board{
	file: "store.json", title: "Slidegate: store",
	about:     "The store as each instance sees it: Redis, the memory store, and what an instance decides by itself.",
	variables: []variable{jobs, instances},
	rows: []row{
		{title: "The store", height: 8, panels: []panel{
			{title: "Store down", about: "1 while a server of the store fails and is not asked, or refuses to write.", unit: "short", bad: 1, queries: []query{{`slidegate_store_down{@}`, "{{instance}}"}}},
			{title: "Time of a store call", about: "One call decides all limits of a request. The line is store.timeout (15 ms).", unit: "s", bad: .015, queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(slidegate_store_seconds_bucket{@}[r])))`, "50 %"},
				{`histogram_quantile(0.99, sum by (le) (rate(slidegate_store_seconds_bucket{@}[r])))`, "99 %"},
				{`histogram_quantile(0.999, sum by (le) (rate(slidegate_store_seconds_bucket{@}[r])))`, "99.9 %"},
			}},
			{title: "Degraded answers", about: "Requests decided without the store, by choice.", unit: "reqps", warn: .001, queries: []query{{`sum by (choice) (rate(slidegate_degraded_answers_total{@}[r]))`, "{{choice}}"}}},
		}},
		{title: "Redis", height: 8, panels: []panel{
			{title: "Store calls", about: "Calls that were sent to Redis, or refused because too many waited.", unit: "reqps", queries: []query{
				{orNone(`sum(rate(slidegate_store_batch_calls_sum{@}[r]))`, ""), "calls"},
				{orNone(`sum by (priority) (rate(slidegate_store_refused_total{@}[r]))`, "priority"), "refused: {{priority}}"},
			}},
			{title: "Errors by class", about: "Requests that Redis did not decide. docs/operate.md explains the classes.", unit: "reqps", warn: .001, queries: []query{{orNone(`sum by (class) (rate(slidegate_store_errors_total{@}[r]))`, "class"), "{{class}}"}}},
			{title: "Servers that do not decide", about: "1 while an instance does not ask a server, or the server refuses to write.", unit: "short", bad: 1, queries: []query{
				{orNone(`max by (node) (slidegate_store_node_open{@})`, "node"), "not asked {{node}}"},
				{orNone(`max by (node) (slidegate_store_node_refuses{@})`, "node"), "refuses {{node}}"},
			}},
			{title: "Eviction", about: "1 while the server's maxmemory-policy is not noeviction: it may delete logs, which resets limits.", unit: "short", warn: 1, queries: []query{{orNone(`max by (node) (slidegate_store_node_evicts{@})`, "node"), "{{node}}"}}},
			{title: "Calls in one command", about: "Average number of store calls sent together. Near 64, Redis or the network is the bottleneck.", unit: "short", warn: 48, queries: []query{{orNone(`sum(rate(slidegate_store_batch_calls_sum{@}[r])) / (sum(rate(slidegate_store_batch_calls_count{@}[r])) > 0)`, ""), "calls"}}},
			{title: "Waiting", about: "Calls that wait to be sent.", unit: "short", queries: []query{
				{orNone(`sum by (node) (slidegate_store_node_queued{@})`, "node"), "waiting {{node}}"},
			}},
			{title: "Foreign values and hits not taken back", about: "Values under Slidegate's keys that were not a log, and hits on a Cluster that could not be taken back.", unit: "ops", warn: .001, width: 12, queries: []query{
				{`sum(rate(slidegate_store_foreign_values_total{@}[r]))`, "foreign values"},
				{orNone(`sum(rate(slidegate_store_not_taken_back_total{@}[r]))`, ""), "not taken back"},
			}},
			{title: "Instances that share the limits", about: "As the instances count themselves in Redis.", unit: "short", width: 12, queries: []query{
				{orNone(`max by (instance) (slidegate_store_replicas{@})`, "instance"), "{{instance}}"},
				{`count(slidegate_build_info{@})`, "instances that Prometheus sees"},
			}},
		}},
		{title: "What an instance decides by itself", height: 8, panels: []panel{
			{title: "Decided without Redis", about: "Denials from memory.", unit: "ops", queries: []query{
				{orNone(`sum(rate(slidegate_local_denials_total{@}[r]))`, ""), "denials from memory"},
			}},
		}},
		{title: "The memory store", height: 8, panels: []panel{
			{title: "Logs", about: "Logs that the memory store holds. Only with store.type memory.", unit: "short", queries: []query{{orNone(`slidegate_store_memory_keys{@}`, "instance"), "{{instance}}"}}},
			{title: "Memory of logs", about: "Memory of the logs, as store.memory.max_bytes counts it.", unit: "bytes", queries: []query{{orNone(`slidegate_store_memory_bytes{@}`, "instance"), "{{instance}}"}}},
			{title: "Too small", about: "Logs dropped although they still counted, and calls refused.", unit: "ops", warn: .001, queries: []query{
				{orNone(`sum(rate(slidegate_store_memory_evicted_total{@}[r]))`, ""), "dropped logs"},
				{orNone(`sum(rate(slidegate_store_memory_refused_total{@}[r]))`, ""), "refused calls"},
			}},
		}},
	},
}

const cluster = `@,envoy_cluster_name="$cluster"`

var envoy = board{
	file: "envoy.json", title: "Slidegate: Envoy beside it",
	about: "What Envoy asks Slidegate and what it gets, from Envoy's /stats/prometheus.",
	variables: []variable{
		{name: "job", label: "Job", query: "label_values(envoy_server_live, job)", about: "The scrape job of Envoy"},
		{name: "instance", label: "Instance", query: "label_values(envoy_server_live{@job}, instance)", about: "Each is an Envoy"},
		{name: "cluster", label: "Cluster of rls", query: `label_values(envoy_cluster_http2_streams_active{@job,envoy_cluster_name=~".*(rls|slidegate|ratelimit|rate_limit).*"}, envoy_cluster_name)`, about: "Envoy's cluster with the addresses of rls", isSingle: true},
	},
	rows: []row{
		{title: "Rate limits", height: 8, panels: []panel{
			{title: "Answers about limits", about: "Answers of Slidegate to the ratelimit filter. error: none came, or an error.", unit: "reqps", stacked: true, queries: []query{
				{orNone(`sum(rate(envoy_cluster_ratelimit_ok{@}[r]))`, ""), "ok"},
				{orNone(`sum(rate(envoy_cluster_ratelimit_over_limit{@}[r]))`, ""), "over limit"},
				{orNone(`sum(rate(envoy_cluster_ratelimit_error{@}[r]))`, ""), "error"},
			}},
			{title: "Passed without a decision", about: "Requests that passed because Slidegate did not answer, by filter.", unit: "reqps", warn: .001, queries: []query{
				{orNone(`sum(rate(envoy_cluster_ratelimit_failure_mode_allowed{@}[r]))`, ""), "ratelimit"},
				{orNone(`sum(rate(envoy_cluster_ext_authz_failure_mode_allowed{@}[r]))`, ""), "ext_authz"},
			}},
			{title: "Authorizations", about: "Answers to the ext_authz filter.", unit: "reqps", stacked: true, queries: []query{
				{orNone(`sum(rate(envoy_cluster_ext_authz_ok{@}[r]))`, ""), "ok"},
				{orNone(`sum(rate(envoy_cluster_ext_authz_denied{@}[r]))`, ""), "denied"},
				{orNone(`sum(rate(envoy_cluster_ext_authz_error{@}[r]))`, ""), "error"},
			}},
		}},
		{title: "Calls to Slidegate", height: 8, panels: []panel{
			{title: "Time of a call", about: "Time of a call to Slidegate as Envoy sees it, with the network. Compare with the timeout of the filter.", unit: "ms", warn: 15, bad: 20, queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(envoy_cluster_upstream_rq_time_bucket{` + cluster + `}[r])))`, "50 %"},
				{`histogram_quantile(0.99, sum by (le) (rate(envoy_cluster_upstream_rq_time_bucket{` + cluster + `}[r])))`, "99 %"},
			}},
			{title: "Calls", about: "Calls to Slidegate in a second.", unit: "reqps", queries: []query{{`sum(rate(envoy_cluster_upstream_rq_total{` + cluster + `}[r]))`, "calls"}}},
			{title: "Calls that failed", about: "Calls without an answer, by reason. overflow: a bound of circuit_breakers was reached, and the request passed without a limit.", unit: "reqps", warn: .001, queries: []query{
				{`sum(rate(envoy_cluster_upstream_rq_timeout{` + cluster + `}[r]))`, "timeout"},
				{`sum(rate(envoy_cluster_upstream_rq_rx_reset{` + cluster + `}[r]))`, "reset by rls"},
				{`sum(rate(envoy_cluster_upstream_rq_tx_reset{` + cluster + `}[r]))`, "reset by Envoy"},
				{`sum(rate(envoy_cluster_upstream_rq_pending_overflow{` + cluster + `}[r]))`, "overflow"},
				{`sum(rate(envoy_cluster_upstream_cx_connect_fail{` + cluster + `}[r]))`, "no connection"},
			}},
			{title: "Instances that Envoy calls", about: "Addresses of rls, and those that pass the health checks.", unit: "short", queries: []query{
				{`max by (instance) (envoy_cluster_membership_healthy{` + cluster + `})`, "healthy {{instance}}"},
				{`max by (instance) (envoy_cluster_membership_total{` + cluster + `})`, "all {{instance}}"},
			}},
			{title: "In flight", about: "Calls without an answer yet, and calls that wait for a connection.", unit: "short", queries: []query{
				{`sum(envoy_cluster_upstream_rq_active{` + cluster + `})`, "in flight"},
				{`sum(envoy_cluster_upstream_rq_pending_active{` + cluster + `})`, "waiting"},
			}},
			{title: "Connections to Slidegate", about: "Open connections, and those that ended.", unit: "short", queries: []query{
				{`sum(envoy_cluster_upstream_cx_active{` + cluster + `})`, "open"},
				{`sum(increase(envoy_cluster_upstream_cx_destroy{` + cluster + `}[r]))`, "ended"},
			}},
		}},
		{title: "Requests of clients", height: 8, panels: []panel{
			{title: "Responses by class", about: "Responses to clients by class of the status. 429 is in 4xx.", unit: "reqps", width: 12, stacked: true, queries: []query{{`sum by (envoy_response_code_class) (rate(envoy_http_downstream_rq_xx{@}[r]))`, "{{envoy_response_code_class}}xx"}}},
			{title: "Time of a request", about: "Time of a whole request as the client sees it.", unit: "ms", width: 12, queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(envoy_http_downstream_rq_time_bucket{@}[r])))`, "50 %"},
				{`histogram_quantile(0.99, sum by (le) (rate(envoy_http_downstream_rq_time_bucket{@}[r])))`, "99 %"},
			}},
		}},
	},
}
