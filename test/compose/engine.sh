# shellcheck shell=bash
# The container engine of the compose test: it installs packages, runs its own dockerd, and restores the host afterwards.
#
# run.sh sources this file. It sets repo (the checkout), cache (kept between runs), work (a temporary folder, removed afterwards),
# docker (the client) and cgroup (a name that is unique on the machine).
# shellcheck disable=SC2154 # run.sh sets these five

# The compose plugin is built from source, because Debian 12 has only compose version 1, which is written in Python.
compose_version=v2.40.3

# The client of the Debian package includes BuildKit. A newer client earlier in PATH needs the buildx plugin for that. Without the
# plugin it builds without cache mounts and prints no error. So this is the full path of the packaged client.
packaged_docker=/usr/bin/docker

dockerd_pid=
forward_policy=
forwarding_before=

install_engine() {
	local missing=()
	if [ ! -x /usr/sbin/dockerd ] || [ ! -x "$packaged_docker" ]; then missing+=(docker.io); fi
	command -v debootstrap >/dev/null || missing+=(debootstrap)
	command -v iptables >/dev/null || missing+=(iptables)
	command -v ip >/dev/null || missing+=(iproute2)
	command -v curl >/dev/null || missing+=(curl)
	command -v jq >/dev/null || missing+=(jq)
	python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
	[ ${#missing[@]} -eq 0 ] && return
	say "installing ${missing[*]}"
	{
		apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
	} >"$work/apt.log" 2>&1 || { tail -20 "$work/apt.log" >&2; die "apt-get could not install ${missing[*]}"; }
}

# build_compose builds the plugin in the cache and sets compose_plugin to its path.
build_compose() {
	compose_plugin=$cache/docker-compose-$compose_version
	[ -x "$compose_plugin" ] && return
	say "building docker compose $compose_version, once (about four minutes)"
	local source
	source=$(cd "$work" && go mod download -json "github.com/docker/compose/v2@$compose_version" | jq -re .Dir) ||
		die "the source of docker compose $compose_version could not be fetched"
	# `go install` refuses some directives in its go.mod. So build it as a main module, from a writable copy.
	cp -r "$source" "$work/compose-src"
	chmod -R u+w "$work/compose-src"
	(
		cd "$work/compose-src" &&
			CGO_ENABLED=0 nice -n 10 go build -trimpath -o "$work/docker-compose" \
				-ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=$compose_version" ./cmd
	) >"$work/compose.log" 2>&1 || { tail -20 "$work/compose.log" >&2; die "docker compose $compose_version did not build"; }
	mv "$work/docker-compose" "$compose_plugin"
	rm -rf "$work/compose-src"
}

# firewall_rules prints the chains and rules of the tables that dockerd changes, one on each line, without counters.
firewall_rules() {
	iptables -w -S
	iptables -w -t nat -S
}

engine_links() { ip -o link show | sed -nE 's/^[0-9]+: (docker0|br-[0-9a-f]{12}|veth[0-9a-f]+)[@:].*/\1/p'; }

# forwarding prints the forwarding setting of each interface. dockerd writes net.ipv4.ip_forward, which resets all of them.
forwarding() {
	local file
	for file in /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv4/conf/*/forwarding; do
		case $file in */docker0/* | */br-*/* | */veth*/*) continue ;; esac
		echo "$file $(cat "$file")"
	done
}

start_engine() {
	# Two daemons would share docker0 and the DOCKER chains, and each would remove those of the other.
	if [ -n "$(engine_links)" ] || firewall_rules | grep -q -- '-N DOCKER'; then
		die "this machine has a container engine, or remains of one: use it with COMPOSE_TEST_ENGINE=running, or remove docker0 and the DOCKER chains"
	fi

	firewall_rules >"$work/firewall.before"
	forwarding_before=$(forwarding)
	forward_policy=$(sed -n 's/^-P FORWARD //p' "$work/firewall.before")

	export DOCKER_HOST=unix://$work/docker.sock
	export DOCKER_CONFIG=$work/config
	mkdir -p "$DOCKER_CONFIG/cli-plugins"
	ln -s "$compose_plugin" "$DOCKER_CONFIG/cli-plugins/docker-compose"

	# dockerd gets its own session. So Ctrl-C does not end it: the trap takes the stack down first.
	# Its cgroups get a unique name, so removing them does not touch those of another engine.
	setsid /usr/sbin/dockerd --data-root "$work/data" --exec-root "$work/exec" --pidfile "$work/dockerd.pid" \
		--cgroup-parent "/$cgroup" --host "$DOCKER_HOST" >"$work/dockerd.log" 2>&1 &
	dockerd_pid=$!
	local i
	for ((i = 0; i < 300; i++)); do
		"$docker" info >/dev/null 2>&1 && return
		kill -0 "$dockerd_pid" 2>/dev/null || break
		sleep 0.2
	done
	tail -20 "$work/dockerd.log" >&2
	die "dockerd did not start"
}

# engine_processes prints the process ids of this dockerd and its children: their command lines name its folders. containerd and
# the shims detach from their parent, so they cannot be found in the process tree.
engine_processes() {
	local dir pid
	for dir in /proc/[0-9]*; do
		pid=${dir#/proc/}
		case $(readlink "$dir/exe" 2>/dev/null) in
		*/dockerd | */containerd | */containerd-shim* | */docker-proxy | */runc) ;;
		*) continue ;;
		esac
		tr '\0' ' ' <"$dir/cmdline" 2>/dev/null | grep -qF -- "$work/" && echo "$pid"
	done
}

# stop_engine ends what start_engine started, and restores the host: firewall, forwarding, links, mounts and cgroups.
stop_engine() {
	[ -n "$dockerd_pid" ] || return 0
	local i pids table rule
	kill "$dockerd_pid" 2>/dev/null
	for ((i = 0; i < 150; i++)); do
		kill -0 "$dockerd_pid" 2>/dev/null || break
		sleep 0.2
	done
	pids=$(engine_processes)
	# shellcheck disable=SC2086 # a list of process ids, one word each
	[ -z "$pids" ] || kill -KILL $pids 2>/dev/null
	wait "$dockerd_pid" 2>/dev/null
	dockerd_pid=

	for table in filter nat; do
		iptables -w -t "$table" -S | grep -E -- '^-A .*(-j DOCKER|-[io] (docker0|br-[0-9a-f]{12})( |$))' |
			while read -ra rule; do iptables -w -t "$table" -D "${rule[@]:1}"; done
		iptables -w -t "$table" -S | sed -n 's/^-N \(DOCKER.*\)/\1/p' >"$work/chains"
		while read -r rule; do iptables -w -t "$table" -F "$rule"; done <"$work/chains"
		while read -r rule; do iptables -w -t "$table" -X "$rule"; done <"$work/chains"
	done
	iptables -w -P FORWARD "$forward_policy"
	engine_links | while read -r rule; do ip link delete "$rule" 2>/dev/null; done
	# ip_forward is first in the list: writing it resets the others.
	while read -r file value; do
		[ "$(cat "$file" 2>/dev/null)" = "$value" ] || echo "$value" >"$file"
	done <<<"$forwarding_before"
	sed -nE 's/^[^ ]+ ([^ ]+) .*/\1/p' /proc/mounts | grep -F -- "$work/" | sort -r | while read -r rule; do umount "$rule"; done
	find /sys/fs/cgroup -depth -type d -path "*/$cgroup*" -exec rmdir {} + 2>/dev/null
	return 0
}

# host_differences prints how the host differs from its state before start_engine. It prints nothing if the host is restored.
host_differences() {
	firewall_rules | diff "$work/firewall.before" - | sed 's/^/firewall: /'
	diff <(echo "$forwarding_before") <(forwarding) | sed 's/^/forwarding: /'
	engine_links | sed 's/^/link: /'
	engine_processes | sed 's/^/process: /'
	grep -F -- "$work/" /proc/mounts | sed 's/^/mount: /'
	find /sys/fs/cgroup -type d -path "*/$cgroup*" | sed 's/^/cgroup: /'
}
