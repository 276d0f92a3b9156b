#!/usr/bin/env bash
# The compose test starts the unchanged docker-compose.yaml, uses it from the host like a user, breaks it, and takes it down.
# It prints PASS or FAIL for each check, and exits with 1 if a check fails. `make compose-test` calls it.
#
# It needs Linux, root and about 2 GB of disk. It installs Debian's container engine if it is missing, starts its own daemon in a
# temporary folder, and makes stand-in images (images.sh says why, and what they cannot prove). When it ends, for any reason, it
# stops the daemon and restores the firewall and the forwarding of the host. It keeps slow results in .tools/compose.
#
#   COMPOSE_TEST_ENGINE=running   use the running engine and the original images instead. The stack then gets its own project name,
#                                 so the test does not touch your volumes.

set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
cache=$repo/.tools/compose
engine=${COMPOSE_TEST_ENGINE:-own}
work=
docker=docker
project=slidegate
ready=
started=$SECONDS
passed=0
failed=0

say() { printf '%s\n' "$*"; }
die() {
	printf 'error: %s\n' "$*" >&2
	exit 2
}
pass() {
	passed=$((passed + 1))
	printf 'PASS  %s\n' "$*"
}
# fail DESCRIPTION [DETAIL]
fail() {
	failed=$((failed + 1))
	printf 'FAIL  %s\n' "$1"
	[ -z "${2-}" ] || printf '%s\n' "$2" | sed 's/^/      /'
}
# equal DESCRIPTION GOT WANT
equal() {
	if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "got:  $2"$'\n'"want: $3"; fi
}
# matches DESCRIPTION GOT PATTERN. PATTERN is a regular expression that matches all of GOT.
matches() {
	if [[ $2 =~ ^($3)$ ]]; then pass "$1"; else fail "$1" "got:  $2"$'\n'"want: $3"; fi
}
# run DESCRIPTION COMMAND... passes if the command succeeds. Otherwise it prints the end of the command's output.
run() {
	local what=$1
	shift
	if "$@" >"$work/out" 2>&1; then pass "$what"; else fail "$what" "$(tail -25 "$work/out")"; fi
}
section() { printf '\n%s\n' "$*"; }

# shellcheck source=test/compose/engine.sh
. "$here/engine.sh"
# shellcheck source=test/compose/images.sh
. "$here/images.sh"

compose() {
	"$docker" compose --ansi never --progress plain --project-directory "$repo" --file "$repo/docker-compose.yaml" --project-name "$project" "$@"
}
# container SERVICE [NUMBER] prints the id of one of its containers.
container() { compose ps --quiet "$1" | sed -n "${2:-1}p"; }
inspect() { "$docker" inspect --format "$2" "$1"; }

# show_logs prints the state and the last log lines of the stack if a check has failed.
show_logs() {
	[ "$failed" -gt 0 ] || return 0
	section "The last log lines of the stack"
	compose ps --all 2>&1
	compose logs --no-color --tail 30 2>&1
}

# finish runs at every exit and cleans up.
finish() {
	local status=$?
	trap - EXIT
	trap '' INT TERM HUP
	# Until the test is ready, the engine may be another one with a stack of the same name.
	if [ -n "$ready" ]; then
		if [ "$status" -gt 1 ]; then fail "the test runs to its end" "it ended with status $status"; fi
		show_logs
		compose down --volumes --remove-orphans --timeout 20 >"$work/out" 2>&1 || fail "the stack is taken down" "$(tail -5 "$work/out")"
	fi
	if [ "$engine" = own ] && [ -n "$dockerd_pid" ]; then
		section "The host"
		stop_engine
		equal "the daemon has ended; firewall, forwarding, links, mounts and cgroups are restored" "$(host_differences)" ""
	fi
	rm -rf --one-file-system "$work"
	printf '\ncompose-test took %d s\n%d passed, %d failed\n' $((SECONDS - started)) "$passed" "$failed"
	if [ "$status" -eq 0 ] && [ "$failed" -gt 0 ]; then status=1; fi
	exit "$status"
}

# ---- Preparation

needs() {
	local tool
	for tool; do command -v "$tool" >/dev/null || die "$tool is needed"; done
}

prepare() {
	# Variables of the caller must not change the stack.
	unset "${!COMPOSE_@}" "${!SLIDEGATE_@}" DOCKER_CONTEXT DOCKER_DEFAULT_PLATFORM
	# This version shows that the build argument arrives.
	export RLS_VERSION=0.0.0-composetest
	base=http://127.0.0.1:10000
	customers=http://127.0.0.1:10001

	case $engine in
	own)
		[ "$(uname -s) $(id -u)" = "Linux 0" ] ||
			die "the test starts its own container engine, which needs Linux and root; to use your engine, set COMPOSE_TEST_ENGINE=running"
		needs go python3
		install_engine
		docker=$packaged_docker
		build_compose
		start_engine
		load_images
		;;
	running)
		project=slidegate-compose-test
		needs docker jq curl
		"$docker" info >/dev/null 2>&1 || die "no container engine answers (COMPOSE_TEST_ENGINE=running)"
		"$docker" compose version >/dev/null 2>&1 || die "docker has no compose plugin"
		compose --profile customers pull --quiet envoy redis postgres >"$work/out" 2>&1 || say "the images could not be pulled; using the local ones"
		;;
	*) die "COMPOSE_TEST_ENGINE must be own or running, not $engine" ;;
	esac
	local address
	for address in "$base" "$customers"; do
		if curl -s -o /dev/null --max-time 2 "$address/"; then die "a server already answers on $address; stop it first"; fi
	done
	ready=yes
	say "engine $("$docker" version --format '{{.Server.Version}}'), compose $("$docker" compose version --short), $([ "$engine" = own ] && echo "stand-in images" || echo "local images")"
}

# ---- Requests

# curl prints this line for a request: the status, the headers of the checks, and the time. Bars separate them.
fields='%{http_code}|%header{ratelimit}|%header{ratelimit-policy}|%header{retry-after}|%header{content-type}|%{time_total}\n'

# ask PATH [CURL OPTION...] sends one request. It sets code, ratelimit, policy and retry_after, and writes all headers to
# $work/headers and the body to $work/body.
ask() {
	local path=$1
	shift
	IFS='|' read -r code ratelimit policy retry_after _ < <(curl -sS --max-time 5 -D "$work/headers" -o "$work/body" -w "$fields" "$@" "$base$path" 2>&1)
}
# ask_many KEY FIRST LAST sends requests one after another on one connection.
ask_many() { curl -sS --max-time 60 -o /dev/null -w "$fields" -H "x-api-key: $1" "$base/?n=[$2-$3]"; }
# codes FILE prints the number of each status, such as "100 x 200, 30 x 429".
codes() { cut -d'|' -f1 "$1" | sort | uniq -c | awk '{printf "%s%d x %s", (NR > 1 ? ", " : ""), $1, $2}'; }
# unlimited FILE prints the number of requests that passed without a RateLimit header: Envoy let them pass because rls failed.
unlimited() { grep -c '^200||' "$1"; }
# lines_are N FILE succeeds if the file has at least N lines.
lines_are() { [ "$(wc -l <"$2")" -ge "$1" ]; }
slowest_ms() { cut -d'|' -f6 "$1" | sort -n | tail -1 | awk '{printf "%d", $1 * 1000}'; }

now() { date +%s.%N; }
# sleep_until TIME sleeps until TIME, in seconds since 1970 with a fraction.
sleep_until() { sleep "$(awk -v t="$1" -v n="$(now)" 'BEGIN {d = t - n; print (d > 0 ? d : 0)}')"; }
after() { awk -v t="$1" -v d="$2" 'BEGIN {printf "%.3f", t + d}'; }

# eventually SECONDS COMMAND... repeats the command until it succeeds.
eventually() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@"; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.2
	done
}
limited() {
	ask / -H 'x-api-key: demo-pro'
	[ "$code" = 200 ] && [ -n "$ratelimit" ]
}

# envoy_admin PATH requests a page of Envoy's admin interface. It listens only inside its container, which has bash but no HTTP client.
envoy_admin() {
	compose exec -T envoy bash -c "exec 3<>/dev/tcp/127.0.0.1/9901 && printf 'GET $1 HTTP/1.1\r\nhost:envoy\r\nconnection:close\r\n\r\n' >&3 && cat <&3"
}
# rls_hosts STATISTIC prints one line for each rls instance that Envoy knows.
rls_hosts() { envoy_admin /clusters | tr -d '\r' | sed -nE "s/^rls::[0-9.]+:8081::$1::(.*)/\1/p"; }
two_healthy_hosts() { [ "$(rls_hosts health_flags)" = healthy$'\n'healthy ]; }

# ---- Checks

check_file() {
	section "The file and the images"
	run "docker-compose.yaml is valid" compose --profile customers config --quiet
	equal "no image is taken as latest" "$(compose --profile customers config --images | grep -cE '(^[^:]+|:latest)$')" 0
	run "the images build" compose build
	local image=slidegate/rls:$RLS_VERSION
	equal "rls is built with the version of the build argument" "$("$docker" run --rm --network none "$image" version 2>&1 | sed -n 1p)" "slidegate $RLS_VERSION"
	equal "it has a second name, that of envoyproxy/ratelimit" \
		"$("$docker" run --rm --network none --entrypoint /bin/ratelimit "$image" version 2>&1 | sed -n 1p)" "slidegate $RLS_VERSION"
	matches "the image has at most 40 MB" "$(inspect "$image" '{{.Size}}')" '[0-9]{1,7}|[123][0-9]{7}|40000000'
	equal "its image has title, version, user, entrypoint and health check" \
		"$(inspect "$image" '{{index .Config.Labels "org.opencontainers.image.title"}} {{index .Config.Labels "org.opencontainers.image.version"}} {{.Config.User}} {{.Config.Entrypoint}} {{.Config.Healthcheck.Test}}')" \
		"Slidegate $RLS_VERSION 65532:65532 [/rls] [CMD /rls healthcheck]"
}

check_start() {
	section "Start"
	if ! compose up --detach --no-build --wait --wait-timeout 120 >"$work/out" 2>&1; then
		fail "everything starts and is healthy" "$(tail -15 "$work/out")"
		exit 1
	fi
	pass "everything starts and is healthy"
	run "rls healthcheck passes in its container" compose exec -T rls /rls healthcheck
	if compose exec -T --env SLIDEGATE_GRPC_ADDRESS=127.0.0.1:9 rls /rls healthcheck >"$work/out" 2>&1; then
		fail "rls healthcheck fails without a server" "it passed"
	else
		pass "rls healthcheck fails without a server"
	fi
}

# published prints every port that the stack publishes on the host.
published() {
	local id
	for id in $(compose ps --quiet); do
		"$docker" inspect "$id" | jq -r '.[].NetworkSettings.Ports | to_entries[] | .key as $port | .value // [] | .[] | "\(.HostIp):\(.HostPort) \($port)"'
	done
}

# check_rights SERVICE... checks the rights of the containers.
check_rights() {
	local service id pid status
	for service; do
		id=$(container "$service")
		equal "$service: read-only, no capabilities, no new privileges" \
			"$(inspect "$id" '{{.HostConfig.ReadonlyRootfs}} {{.HostConfig.CapDrop}} {{.HostConfig.SecurityOpt}} {{.HostConfig.Privileged}}')" \
			"true [ALL] [no-new-privileges:true] false"
		# The kernel shows the true rights of the first process, unless the engine is on another machine.
		pid=$(inspect "$id" '{{.State.Pid}}')
		grep -qs "$id" "/proc/$pid/cgroup" || continue
		status=$(awk '$1 ~ /^(Uid|CapEff|CapPrm|NoNewPrivs|Seccomp):$/ {printf "%s%s ", $1, $2}' "/proc/$pid/status")
		matches "$service: not root, no capabilities now or later, under seccomp" "$status" \
			'Uid:[1-9][0-9]* CapPrm:0+ CapEff:0+ NoNewPrivs:1 Seccomp:2 '
		matches "$service: its root file system is mounted read-only" "$(awk '$5 == "/" {print $6}' "/proc/$pid/mountinfo")" 'ro(,.*)?'
	done
}

# on_network NETWORK prints the containers on a network, and whether it is internal.
on_network() {
	"$docker" network inspect "${project}_$1" --format '{{.Internal}}{{range .Containers}} {{.Name}}{{end}}' | xargs -n1 | sort | xargs
}

# out_of_reach DESCRIPTION FROM SERVICE NETWORK PORT passes if the container of FROM, which has bash, cannot reach the service on its
# network.
out_of_reach() {
	local address
	address=$(inspect "$(container "$3")" "{{(index .NetworkSettings.Networks \"${project}_$4\").IPAddress}}")
	if [ -z "$address" ] || compose exec -T "$2" getent hosts "$3" >"$work/out" 2>&1 ||
		compose exec -T "$2" timeout 2 bash -c "exec 3<>/dev/tcp/$address/$5" >>"$work/out" 2>&1; then
		fail "$1" "$(cat "$work/out")"
	else
		pass "$1"
	fi
}

check_isolation() {
	section "Rights and networks"
	check_rights envoy rls redis app
	equal "only Envoy's port is published, and only on loopback" "$(published)" "127.0.0.1:10000 10000/tcp"
	equal "Redis's network has only Redis and rls" "$(on_network store)" "$project-redis-1 $project-rls-1 true"
	out_of_reach "Envoy reaches Redis neither by name nor by address" envoy redis store 6379
}

check_limits() {
	section "Limits"
	ask /hello
	equal "a request without a key passes, limited by its address" "$code ${ratelimit%%;*}" '200 "per-address"'
	equal "the application answers, and gets method and path" "$(jq -r '.method + " " + .path' "$work/body")" "GET /hello"
	ask /hello -H 'x-tier: pro' -H 'x-consumer-id: root' -H 'x-api-key: demo-starter' -H 'x-api-key: demo-pro'
	equal "Envoy removes headers that only Envoy may set, and of two keys keeps the one that counts" \
		"$(jq -c '[.headers["X-Tier"], .headers["X-Consumer-Id"], .headers["X-Api-Key"]]' "$work/body")" '[null,null,["demo-starter"]]'

	# A free key has 100 a minute. Requests come one after another, so the first ones must pass.
	ask_many demo-free 1 130 >"$work/burst"
	equal "of 130 requests of a free key exactly 100 pass" "$(codes "$work/burst")" "100 x 200, 30 x 429"
	equal "they are the first 100" "$(head -100 "$work/burst" | cut -d'|' -f1 | sort -u)" 200
	equal "every answer comes from rls" "$(unlimited "$work/burst")" 0
	matches "an answer says what remains" "$(sed -n 100p "$work/burst" | cut -d'|' -f2,3)" '"per-key[^"]*";r=0;t=[0-9]+\|"per-key[^"]*";q=100;w=60, .*'
	equal "every denial has Retry-After, and a problem as its body" \
		"$(tail -30 "$work/burst" | awk -F'|' '$4 !~ /^[1-9][0-9]?$/ || $4 > 60 || $5 != "application/problem+json"' | head -3)" ""

	# During this burst Redis stops for 30 ms, twice as long as rls waits for it.
	local redis
	redis=$(inspect "$(container redis)" '{{.State.Pid}}')
	if kill -0 "$redis" 2>"$work/out"; then
		ask_many made-up-late 1 130 >"$work/burst" &
		local burst=$!
		eventually 10 lines_are 40 "$work/burst"
		kill -STOP "$redis"
		sleep 0.03
		kill -CONT "$redis"
		wait "$burst"
		equal "of 130 requests exactly 100 pass although Redis stalls" "$(codes "$work/burst")" "100 x 200, 30 x 429"
		equal "every answer comes from rls" "$(unlimited "$work/burst")" 0
	else
		say "      skipped: requests while Redis stalls, because its process cannot be stopped from here"
	fi

	local sent
	sent=$(now)
	ask / -H 'x-api-key: demo-free'
	local wait=$retry_after answered
	answered=$(now)
	equal "the problem names the rule, the limit and the wait" \
		"$(jq -r '"\(.status) \(.rule) \(.limit) \(.window) \(.retry_after)"' "$work/body")" "429 per-key 100 60 $wait"
	ask / -H 'x-api-key: demo-starter'
	equal "another key is not affected" "$code" 200
	ask /login
	local first=$code i
	for ((i = 2; i <= 10; i++)); do ask /login; done
	ask /login
	equal "a route has its own limit: the 11th login from one address is denied" "$first $code" "200 429"
	ask / -H 'x-api-key: demo-starter'
	equal "other requests from that address are not affected" "$code" 200

	# Retry-After is in whole seconds, rounded up. So the request is denied a second before, and allowed after it.
	sleep_until "$(after "$sent" "$(awk -v w="$wait" 'BEGIN {print w - 1.4}')")"
	ask / -H 'x-api-key: demo-free'
	equal "Retry-After is true ($wait s): still denied before" "$code" 429
	sleep_until "$(after "$answered" "$wait")"
	ask / -H 'x-api-key: demo-free'
	equal "Retry-After is true: allowed after" "$code" 200
}

check_replicas() {
	section "Two instances of rls on one Redis"
	run "a second instance starts" compose up --detach --no-build --no-recreate --scale rls=2 --wait --wait-timeout 60
	if eventually 30 two_healthy_hosts; then
		pass "Envoy finds it"
	else
		fail "Envoy finds it" "$(rls_hosts health_flags)"
		return
	fi
	local before
	before=$(rls_hosts rq_success | xargs)
	# Twenty clients send requests with unknown keys, each with another one. They share one log for each address, of the default tier.
	seq 130 | xargs -P 20 -I{} curl -sS --max-time 10 -o /dev/null -w "$fields" -H 'x-api-key: made-up-{}' "$base/" >"$work/burst"
	equal "of 130 concurrent requests with unknown keys exactly 100 pass" "$(codes "$work/burst")" "100 x 200, 30 x 429"
	equal "every answer comes from rls" "$(unlimited "$work/burst")" 0
	# Health checks alone give fewer than 20 answers in this time.
	local each
	each=$(paste -d' ' <(xargs -n1 <<<"$before") <(rls_hosts rq_success) | awk '{print ($2 - $1 >= 20 ? "yes" : "no: " $2 - $1)}' | xargs)
	equal "Envoy asks both instances" "$each" "yes yes"
}

check_store_gone() {
	section "Redis stops"
	run "Redis is stopped" compose stop redis
	# store.on_error is local: each instance decides by its share of the limit, and remembers denials.
	ask_many made-up-again 1 20 >"$work/burst"
	equal "a limit without room still denies" "$(codes "$work/burst"), $(unlimited "$work/burst") unlimited" "20 x 429, 0 unlimited"
	local slow
	slow=$(slowest_ms "$work/burst")
	if [ "$slow" -lt 250 ]; then pass "none of them waits (the slowest took $slow ms)"; else fail "none of them waits" "the slowest took $slow ms"; fi
	run "rls is still healthy, so the engine does not restart it" compose exec -T rls /rls healthcheck
	run "Redis is started" compose up --detach --no-build --no-recreate --scale rls=2 --wait --wait-timeout 60
	if eventually 15 limited; then pass "limits are back by themselves"; else fail "limits are back by themselves" "$code|$ratelimit"; fi
	ask / -H 'x-api-key: made-up-once-more'
	equal "earlier requests still count" "$code" 429

	run "Redis is paused" compose pause redis
	ask_many demo-starter 1 10 >"$work/burst"
	equal "requests with room pass, with RateLimit headers" "$(codes "$work/burst"), $(unlimited "$work/burst") unlimited" "10 x 200, 0 unlimited"
	slow=$(slowest_ms "$work/burst")
	if [ "$slow" -lt 250 ]; then pass "none of them waits for long (the slowest took $slow ms)"; else fail "none of them waits for long" "the slowest took $slow ms"; fi
	run "Redis continues" compose unpause redis
	if eventually 15 limited; then pass "limits are back by themselves"; else fail "limits are back by themselves" "$code|$ratelimit"; fi
}

check_rls_gone() {
	section "rls stops"
	run "both instances are stopped" compose stop rls
	ask_many demo-starter 1 20 >"$work/burst"
	equal "requests pass without RateLimit headers" "$(codes "$work/burst"), $(unlimited "$work/burst") unlimited" "20 x 200, 20 unlimited"
	run "both instances are started" compose up --detach --no-build --no-recreate --scale rls=2 --wait --wait-timeout 60
	if eventually 15 limited; then pass "limits are back by themselves"; else fail "limits are back by themselves" "$code|$ratelimit"; fi
}

# sql STATEMENT runs a statement as the superuser, inside the container.
sql() {
	compose exec -T postgres psql --no-psqlrc --quiet --tuples-only --no-align --set=ON_ERROR_STOP=1 --username=postgres --dbname=slidegate "--command=$1"
}
# sql_over_network USER PASSWORD-FILE STATEMENT runs a statement over TCP. The password file is in the container.
sql_over_network() {
	compose exec -T postgres bash -c "PGPASSWORD=\$(cat $2) psql --no-psqlrc --quiet --tuples-only --no-align --no-password --host=postgres --username=$1 --dbname=slidegate --command=\"\$0\"" "$3" 2>&1
}
# seen DESCRIPTION STATEMENT COMMAND... runs a statement and passes if the command succeeds soon after. Cached records would last
# longer: tiers.cache.ttl is a minute, and unknown_ttl ten seconds.
seen() {
	local what=$1 statement=$2 from requests=0
	shift 2
	if ! sql "$statement" >"$work/out" 2>&1; then
		fail "$what" "$(cat "$work/out")"
		return
	fi
	from=$(now)
	while [ $requests -lt 20 ]; do
		requests=$((requests + 1))
		if "$@"; then
			pass "$what (request $requests, $(awk -v a="$from" -v b="$(now)" 'BEGIN {printf "%d", (b - a) * 1000}') ms after psql)"
			return
		fi
		sleep 0.05
	done
	fail "$what" "$code|$ratelimit|$policy"
}
# answers CODE POLICY KEY succeeds if a request with the key gets the code. POLICY is the beginning of RateLimit-Policy.
answers() {
	ask / -H "x-api-key: $3"
	[ "$code" = "$1" ] && [[ $policy == "$2"* ]]
}

check_customers() {
	section "Profile customers: PostgreSQL, and which requests pass"
	equal "without the profile its services and networks do not exist" \
		"$(compose config --services | sort | xargs), $("$docker" network ls --filter "label=com.docker.compose.project=$project" --format '{{.Name}}' | sort | xargs)" \
		"app envoy redis rls, ${project}_app ${project}_edge ${project}_limits ${project}_store"
	export COMPOSE_PROFILES=customers
	run "everything starts and is healthy" compose up --detach --no-build --no-recreate --scale rls=2 --wait --wait-timeout 120
	local base=$customers

	check_rights envoy-customers rls-customers postgres
	equal "the second Envoy is published too, on loopback" "$(published | sort | xargs)" "127.0.0.1:10000 10000/tcp 127.0.0.1:10001 10000/tcp"
	equal "PostgreSQL's network has only PostgreSQL and its rls" "$(on_network customers)" "$project-postgres-1 $project-rls-customers-1 true"
	equal "only its own Envoy can reach this rls" "$(on_network authorization)" "$project-envoy-customers-1 $project-rls-customers-1 true"
	out_of_reach "its Envoy reaches PostgreSQL neither by name nor by address" envoy-customers postgres customers 5432
	out_of_reach "the other Envoy reaches PostgreSQL neither by name nor by address" envoy postgres customers 5432
	local password=/run/secrets/customers-password
	equal "PostgreSQL allows rls to read" "$(sql_over_network slidegate "$password" 'SELECT count(*) FROM slidegate.keys')" 6
	matches "PostgreSQL does not allow rls to write" "$(sql_over_network slidegate "$password" 'DELETE FROM slidegate.keys')" '.*permission denied.*'
	matches "PostgreSQL refuses rls without a password" "$(sql_over_network slidegate /dev/null 'SELECT 1')" '.*no password supplied.*'
	matches "PostgreSQL refuses its superuser over TCP" "$(sql_over_network postgres "$password" 'SELECT 1')" '.*password authentication failed.*'

	ask /
	equal "without a key: 401, with the accepted schemes" \
		"$code $(jq -r .reason "$work/body") $(grep -ciE '^www-authenticate: bearer realm="api"' "$work/headers")" "401 missing 1"
	ask / -H 'x-api-key: demo-unknown'
	equal "with an unknown key: 401" "$code $(jq -r .reason "$work/body")" "401 unknown"
	ask / -H 'x-api-key: demo-revoked'
	equal "with a revoked key: 401" "$code $(jq -r .reason "$work/body")" "401 unknown"
	ask / -H 'x-api-key: demo-acme' -H 'x-api-key: demo-bigco'
	equal "with two keys: 401" "$code $(jq -r .reason "$work/body")" "401 malformed"
	ask / -H 'x-api-key: demo-gone'
	equal "with the key of a disabled customer: 403" "$code $(jq -r .reason "$work/body")" "403 disabled"
	ask /login
	equal "a route that needs no key passes without one" "$code" 200
	ask / -H 'x-api-key: demo-acme' -H 'x-subject-id: bigco' -H 'x-tier: pro'
	equal "with a customer's key the application gets the true subject and tier, and no key" \
		"$code $(jq -c '[.headers["X-Subject-Id"], .headers["X-Tier"], .headers["X-Api-Key"]]' "$work/body")" '200 [["acme"],["starter"],null]'
	local first=${ratelimit%;t=*}
	ask / -H 'authorization: Bearer demo-acme-new'
	equal "two keys of one customer share its limits" "$first ${ratelimit%;t=*}" '"per-subject";r=2999 "per-subject";r=2998'
	equal "the application gets neither key" "$(jq -c '.headers["Authorization"]' "$work/body")" null
	ask / -H 'x-api-key: demo-bigco'
	matches "a customer with an override has its limit" "$code $policy" '200 "per-subject[^"]*";q=60000;w=60, .*'

	ask_many demo-hobby 1 130 >"$work/burst"
	equal "of 130 requests of a free customer exactly 100 pass" "$(codes "$work/burst")" "100 x 200, 30 x 429"
	equal "every answer comes from rls" "$(unlimited "$work/burst")" 0

	section "Profile customers: changes in PostgreSQL"
	seen "a better tier applies at once" "UPDATE slidegate.subjects SET tier = 'starter' WHERE id = 'hobby'" answers 200 '"per-subject";q=3000;w=60' demo-hobby
	seen "a lesser tier applies at once, and earlier requests count" "UPDATE slidegate.subjects SET tier = 'free' WHERE id = 'hobby'" answers 429 '"per-subject";q=100;w=60' demo-hobby
	local digest
	digest=$(printf 'demo-own\n' | compose exec -T rls-customers /rls digest)
	ask / -H 'x-api-key: demo-own'
	equal "a key that PostgreSQL does not have yet: 401" "$code" 401
	seen "the key passes once PostgreSQL has it" "INSERT INTO slidegate.keys (digest, subject) VALUES ('$digest', 'acme')" answers 200 "" demo-own
	seen "the key is refused once it is revoked" "UPDATE slidegate.keys SET revoked_at = now() WHERE digest = '$digest'" answers 401 "" demo-own
	seen "a disabled customer is refused" "UPDATE slidegate.subjects SET disabled = true WHERE id = 'bigco'" answers 403 "" demo-bigco

	section "Profile customers: PostgreSQL stops"
	run "PostgreSQL is stopped" compose stop postgres
	ask_many demo-acme 1 20 >"$work/burst"
	equal "known customers still pass, within their limits" "$(codes "$work/burst"), $(unlimited "$work/burst") unlimited" "20 x 200, 0 unlimited"
	local slow
	slow=$(slowest_ms "$work/burst")
	if [ "$slow" -lt 250 ]; then pass "none of them waits (the slowest took $slow ms)"; else fail "none of them waits" "the slowest took $slow ms"; fi
	ask / -H 'x-api-key: demo-stranger'
	equal "a key that rls has not looked up before: 503" "$code" 503
	run "rls is still healthy" compose exec -T rls-customers /rls healthcheck
	run "PostgreSQL is started" compose up --detach --no-build --no-recreate --scale rls=2 --wait --wait-timeout 60
	if eventually 15 answers 401 "" demo-stranger; then pass "rls refuses that key again"; else fail "rls refuses that key again" "$code"; fi
	digest=$(printf 'demo-acme-new\n' | compose exec -T rls-customers /rls digest)
	seen "changes apply at once again" "UPDATE slidegate.keys SET revoked_at = now() WHERE digest = '$digest'" answers 401 "" demo-acme-new
}

check_logs() {
	section "Logs"
	# Envoy writes its access log every ten seconds.
	sleep 11
	compose logs --no-color --no-log-prefix envoy 2>/dev/null | grep '^{' >"$work/access"
	equal "every line of the access log is JSON" "$(jq -c . "$work/access" | wc -l)" "$(wc -l <"$work/access")"
	equal "a denial is logged with its rule, tier and wait" \
		"$(jq -r 'select(.status == 429 and .rule == "per-key") | "\(.flags) \(.tier) \(.limit) \(.remaining) \(.retry_after > 0)"' "$work/access" | sort -u)" \
		"RL free 100 0 true"
	equal "a request without a rule is logged with null" "$(jq -r 'select(.status == 200 and .rule == null) | "\(.tier) \(.retry_after)"' "$work/access" | sort -u)" "null null"
	compose logs --no-color --no-log-prefix envoy-customers 2>/dev/null | grep '^{' >"$work/access"
	equal "an authorization that is refused is logged with its reason" \
		"$(jq -r 'select(.status == 401 or .status == 403) | "\(.flags) \(.reason)"' "$work/access" | sort -u | xargs)" \
		"UAEX disabled UAEX malformed UAEX missing UAEX unknown"
	equal "a denial is logged with the customer" \
		"$(jq -r 'select(.status == 429) | "\(.flags) \(.subject) \(.tier) \(.rule) \(.limit)"' "$work/access" | sort -u)" \
		"RL hobby free per-subject 100"
	# Unknown keys are secret too. Logs may contain the ids of subjects.
	equal "no API key is in any log" "$(compose logs --no-color 2>/dev/null | grep -cE 'made-up-|demo-')" 0
	equal "no password is in any log" "$(compose logs --no-color 2>/dev/null | grep -cFf "$repo/deploy/compose/customers.password")" 0
}

check_end() {
	show_logs
	section "The end"
	run "the stack is taken down" compose down --volumes --timeout 20
	equal "no container, network or volume of the stack is left" "$(
		label=label=com.docker.compose.project=$project
		"$docker" ps --all --quiet --filter "$label"
		"$docker" network ls --quiet --filter "$label"
		"$docker" volume ls --quiet --filter "$label"
	)" ""
}

main() {
	work=$(mktemp -d "${TMPDIR:-/tmp}/slidegate-compose.XXXXXX")
	cgroup=$(basename "$work")
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	mkdir -p "$cache"
	prepare
	check_file
	[ "$failed" -eq 0 ] || exit 1
	check_start
	check_isolation
	check_limits
	check_replicas
	check_store_gone
	check_rls_gone
	check_customers
	check_logs
	check_end
}

main
