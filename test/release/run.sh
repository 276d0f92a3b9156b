#!/usr/bin/env bash
# Makes a release of this tree without publishing it, and checks what is in it. It prints PASS or FAIL for each check, SKIP for what this
# machine cannot check, and exits with 1 if a check fails. `make release-check` calls it, with goreleaser and cyclonedx-gomod in PATH.
#
# What it cannot prove: that the images build (that needs an engine with buildx; the compose test builds the same stages), that a
# running systemd starts the service, and that the binaries for macOS and Windows run.
#
#   RELEASE_CHECK=quick   only the platform of this machine. The full set compiles rls seven times.

set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
dist=$repo/dist
mode=${RELEASE_CHECK:-full}
started=$SECONDS
passed=0
failed=0
skipped=0
rls_pid=

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
skip() {
	skipped=$((skipped + 1))
	printf 'SKIP  %s\n' "$*"
}
# equal DESCRIPTION GOT WANT
equal() {
	if [ "$2" = "$3" ]; then pass "$1"; else fail "$1" "got:  $2"$'\n'"want: $3"; fi
}
# has DESCRIPTION TEXT LINE... passes if each line is a whole line of the text.
has() {
	local what=$1 text=$2 line missing=()
	shift 2
	for line; do grep -qxF -- "$line" <<<"$text" || missing+=("$line"); done
	if [ ${#missing[@]} = 0 ]; then pass "$what"; else fail "$what" "missing: ${missing[*]}"$'\n'"in:"$'\n'"$text"; fi
}
# run DESCRIPTION COMMAND... passes if the command succeeds. Otherwise it prints the end of the command's output.
run() {
	local what=$1
	shift
	if "$@" >"$work/out" 2>&1; then pass "$what"; else fail "$what" "$(tail -25 "$work/out")"; fi
}
have() { command -v "$1" >/dev/null; }
section() { printf '\n%s\n' "$*"; }

finish() {
	local status=$?
	trap - EXIT
	[ -z "$rls_pid" ] || kill "$rls_pid" 2>/dev/null
	rm -rf --one-file-system "$work"
	printf '\nrelease-check took %d s\n%d passed, %d failed, %d skipped\n' $((SECONDS - started)) "$passed" "$failed" "$skipped"
	if [ "$status" -eq 0 ] && [ "$failed" -gt 0 ]; then status=1; fi
	exit "$status"
}

make_release() {
	section "The release"
	local config=$repo/.goreleaser.yaml
	run "goreleaser accepts the configuration" goreleaser check --config "$config"
	if [ "$mode" = quick ]; then
		config=$work/goreleaser.yaml
		sed -E -e 's/^    goos: .*/    goos: [linux]/' -e "s/^    goarch: .*/    goarch: [$arch]/" "$repo/.goreleaser.yaml" >"$config"
		# A cask is for macOS.
		sed -i '/^homebrew_casks:/,$d' "$config"
	fi
	run "goreleaser makes a snapshot" goreleaser release --config "$config" --snapshot --clean --skip=publish,docker,announce
	[ -f "$dist/metadata.json" ] || exit 1
	version=$(jq -r .version "$dist/metadata.json")
	commit=$(jq -r .commit "$dist/metadata.json")
	echo "      version $version"
}

check_files() {
	section "Files"
	local want=() platform
	for platform in "${platforms[@]}"; do
		want+=("slidegate_${version}_$platform.$([[ $platform = windows_* ]] && echo zip || echo tar.gz)" "slidegate_${version}_$platform.cdx.json")
	done
	has "checksums name each archive, package and list of modules" "$(sed 's/.* //' "$dist/checksums.txt")" "${want[@]}" "${debs[@]}" "${rpms[@]}"
	run "checksums are right" bash -c "cd '$dist' && sha256sum --check --strict checksums.txt"
	local archive inside files
	inside=$(printf '%s\n' LICENSE README.md CHANGELOG.md man/rls.1 completions/rls.bash completions/_rls completions/rls.fish \
		examples/rules.yaml examples/tiers.yaml examples/postgres/schema.sql systemd/rls.service)
	inside+=$'\n'$(cd "$repo" && printf 'examples/%s\n' envoy/*.yaml)
	for archive in "$dist"/*.tar.gz "$dist"/*.zip; do
		[ -e "$archive" ] || continue
		case $archive in
		*.zip) files=$(python3 -m zipfile -l "$archive" | awk 'NR > 1 { print $1 }') binary=rls.exe ;;
		*) files=$(tar -tzf "$archive") binary=rls ;;
		esac
		equal "$(basename "$archive") holds what it should" "$(sort <<<"$files")" "$(printf '%s\n%s\n' "$inside" "$binary" | sort)"
	done
	equal "files of an archive belong to root and have the time of the commit" \
		"$(tar --utc --full-time -tvzf "$dist/slidegate_${version}_linux_$arch.tar.gz" | awk '{ print $2, $4 "T" $5 "Z" }' | sort -u)" \
		"root/root $(TZ=UTC0 git -C "$repo" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)"
}

check_binaries() {
	section "Binaries"
	tar -xzf "$dist/slidegate_${version}_linux_$arch.tar.gz" -C "$work"
	equal "the binary of this machine says version, commit and date" "$("$work/rls" version | head -3)" \
		"slidegate $version"$'\n'"commit $commit"$'\n'"date $(TZ=UTC0 git -C "$repo" log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)"
	local other emulator
	for other in arm64:qemu-aarch64-static armv7:qemu-arm-static; do
		emulator=${other#*:} other=${other%%:*}
		[[ " ${platforms[*]} " = *" linux_$other "* ]] || continue
		mkdir -p "$work/$other"
		tar -xzf "$dist/slidegate_${version}_linux_$other.tar.gz" -C "$work/$other"
		if have "$emulator"; then
			equal "the binary for $other runs under $emulator" "$("$emulator" "$work/$other/rls" version | head -1)" "slidegate $version"
		else
			skip "the binary for $other was not run: $emulator is not installed"
		fi
	done
	local file
	for file in "$dist"/rls_*/rls*; do
		equal "$(basename "$(dirname "$file")") names no path of this machine" "$(grep -acF "$repo" "$file")" 0
	done
}

check_sboms() {
	section "Lists of modules"
	local sbom=$dist/slidegate_${version}_linux_$arch.cdx.json built listed
	built=$(go version -m "$work/rls" | awk '$1 == "dep" { print $2 "@" $3 }' | sort)
	listed=$(jq -r '.components[] | select(.purl | startswith("pkg:golang/")) | select(.name != "std") | "\(.name)@\(.version)"' "$sbom" | sort)
	equal "CycloneDX lists each module of the binary with its version" "$listed" "$built"
	equal "it names the release" "$(jq -r '"\(.bomFormat) \(.metadata.component.name) \(.metadata.component.version)"' "$sbom")" \
		"CycloneDX github.com/slidegate/slidegate $version"
}

check_man_and_completions() {
	section "Man page and completions"
	if have mandoc; then
		# Its other remarks are about style: a synopsis written by hand, long lines.
		equal "mandoc finds no error and no warning" "$(mandoc -T lint -W warning "$work/man/rls.1" 2>&1)" ""
	else skip "mandoc is not installed"; fi
	have man && equal "man finds nothing to warn of" "$(LC_ALL=C.UTF-8 MANWIDTH=200 man --warnings --local-file "$work/man/rls.1" 2>&1 >/dev/null)" ""
	local shell
	PATH=$work:$PATH
	# What bash offers after "rls denial".
	equal "bash completes a command" "$(bash --norc -c '
		[ -r /usr/share/bash-completion/bash_completion ] && . /usr/share/bash-completion/bash_completion
		declare -F _get_comp_words_by_ref >/dev/null || _get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${COMP_WORDS[COMP_CWORD]}; prev=${COMP_WORDS[COMP_CWORD-1]}; }
		. "$1"; COMP_WORDS=(rls denial) COMP_CWORD=1 COMP_LINE="rls denial" COMP_POINT=10 COMP_TYPE=9; __start_rls 2>/dev/null; echo ${COMPREPLY[*]}' - "$work/completions/rls.bash")" denials
	for shell in zsh fish; do
		if ! have "$shell"; then skip "$shell is not installed"; fi
	done
	have fish && equal "fish completes a command" "$(fish --no-config -c "source '$work/completions/rls.fish'; complete -C 'rls denial'" | cut -f1)" denials
	# The function itself needs a terminal; this loads it as an installed file is loaded.
	have zsh && equal "zsh loads the function and binds it" \
		"$(zsh -f -c "fpath=('$work/completions' \$fpath); autoload -Uz compinit; compinit -u -D; autoload +X _rls && echo \$_comps[rls]" 2>&1)" _rls
}

check_packages() {
	section "Packages"
	local want=(/usr/bin/rls /usr/lib/systemd/system/rls.service /etc/slidegate/slidegate.yaml /etc/slidegate/rules/rules.yaml /etc/slidegate/tiers.yaml
		/etc/default/rls /usr/share/man/man1/rls.1.gz /usr/share/bash-completion/completions/rls /usr/share/fish/vendor_completions.d/rls.fish
		/usr/share/doc/slidegate/copyright /usr/share/doc/slidegate/examples/envoy/ratelimit.yaml
		/usr/share/doc/slidegate/examples/postgres/schema.sql)
	local deb=$dist/${debs[0]} rpm=$dist/${rpms[0]} root=$work/root conf
	conf=$(printf '%s\n' /etc/slidegate/slidegate.yaml /etc/slidegate/rules/rules.yaml /etc/slidegate/tiers.yaml /etc/default/rls | sort)
	if have dpkg-deb; then
		has "the deb has its files" "$(dpkg-deb --contents "$deb" | awk '{ print substr($6, 2) }')" "${want[@]}" /usr/share/zsh/vendor-completions/_rls
		equal "the deb says what to keep at an upgrade" "$(dpkg-deb --info "$deb" conffiles | sort)" "$conf"
		equal "all files of the deb belong to root" "$(dpkg-deb --contents "$deb" | awk '{ print $2 }' | sort -u)" root/root
		install_deb "$deb" "$root"
	else skip "dpkg-deb is not installed"; fi
	if have rpm; then
		has "the rpm has its files" "$(rpm --query --package --list "$rpm" 2>/dev/null)" "${want[@]}" /usr/share/zsh/site-functions/_rls
		equal "the rpm says what to keep at an upgrade" "$(rpm --query --package --configfiles "$rpm" 2>/dev/null | sort)" "$conf"
		run "the digests in the rpm are right" rpm --checksig --nosignature "$rpm"
	else skip "rpm is not installed"; fi
}

# install_deb DEB ROOT installs a package into a folder, runs it there, and removes it.
install_deb() {
	if [ "$(id -u)" != 0 ]; then
		skip "the deb was not installed: dpkg needs root"
		return
	fi
	mkdir -p "$2/var/lib/dpkg/updates" "$2/var/lib/dpkg/info" "$2/bin"
	touch "$2/var/lib/dpkg/status" "$2/var/lib/dpkg/available"
	# The scripts of a package run inside the folder, so it needs a shell.
	local dir
	for dir in bin lib lib64 usr/bin usr/lib; do
		[ -L "/$dir" ] || [ ! -d "/$dir" ] || mkdir -p "$2/$dir"
	done
	for dir in bin lib lib64; do
		[ ! -L "/$dir" ] || { rmdir "$2/$dir" 2>/dev/null; mkdir -p "$2/usr/$dir"; ln -sfn "usr/$dir" "$2/$dir"; }
	done
	local file
	for file in /bin/sh /bin/rm $(ldd /bin/sh /bin/rm | grep -oE '/[^ :)]+' | sort -u); do
		[ -f "$file" ] && [ ! -e "$2$file" ] && mkdir -p "$2$(dirname "$file")" && cp -L "$file" "$2$file"
	done
	run "dpkg installs the deb into a folder" dpkg --root="$2" --force-not-root --force-depends --log=/dev/null --install "$1"
	# rls in the folder, with the settings of the package: they name /etc/slidegate.
	run "the settings, rules and tiers of the package are valid" chroot "$2" /usr/bin/rls validate --config /etc/slidegate/slidegate.yaml
	mkdir -p "$2/var/lib/private/slidegate"
	run "dpkg removes it" dpkg --root="$2" --log=/dev/null --remove slidegate
	equal "removing keeps the settings" "$([ -f "$2/etc/slidegate/slidegate.yaml" ] && [ -d "$2/var/lib/private/slidegate" ] && [ ! -e "$2/usr/bin/rls" ] && echo yes)" yes
	run "dpkg purges it" dpkg --root="$2" --log=/dev/null --purge slidegate
	equal "purging leaves neither settings nor state" "$(cd "$2" && find . -path '*/slidegate*' -not -path './var/lib/dpkg/*')" ""
}

check_unit() {
	section "The systemd unit"
	if ! have systemd-analyze; then
		skip "systemd-analyze is not installed"
		return
	fi
	local unit=$work/rls.service
	# verify wants the program to exist.
	sed "s#/usr/bin/rls#$work/rls#" "$repo/deploy/systemd/rls.service" >"$unit"
	equal "systemd-analyze verify finds nothing" "$(systemd-analyze verify --man=no "$unit" 2>&1 | grep -F rls.service)" ""
	local exposure
	exposure=$(systemd-analyze security --offline=true "$unit" --no-pager 2>/dev/null | sed -nE 's/.*Overall exposure level.*: ([0-9.]+).*/\1/p')
	if awk "BEGIN { exit !(\"$exposure\" != \"\" && \"$exposure\" <= 2.0) }"; then
		pass "systemd-analyze security: exposure $exposure of 10 (at most 2.0)"
	else fail "systemd-analyze security: exposure at most 2.0" "$exposure"; fi
	[ -d /run/systemd/system ] || skip "systemd does not run here: the unit was checked, not started"
}

check_cask() {
	section "Homebrew"
	local cask=$dist/homebrew/Casks/slidegate.rb
	[ "$mode" = full ] || { skip "RELEASE_CHECK=quick makes no cask"; return; }
	has "the cask names the release and what it installs" "$(sed 's/^ *//' "$cask")" "version \"$version\"" 'binary "rls"' 'manpage "man/rls.1"'
	if have ruby; then run "ruby parses the cask" ruby -c "$cask"; else skip "ruby is not installed: the cask was not parsed"; fi
}

# Start to ready: a median of 11 rounds. The bound is generous, for a busy machine.
check_figures() {
	section "Figures"
	local size
	size=$(stat -c %s "$work/rls")
	# The image holds the binary once, and CA certificates of 0.2 to 0.3 MB.
	if [ $((size + 300000)) -le 40000000 ]; then
		pass "image: $((size / 100000))e5 bytes of binary and 3e5 of certificates, together at most 40 MB"
	else fail "the image has at most 40 MB" "the binary has $size bytes, the certificates 300000"; fi
	local round began all=()
	for round in $(seq 11); do
		began=$(date +%s%N)
		SLIDEGATE_GRPC_ADDRESS=unix://$work/grpc.sock SLIDEGATE_HTTP_ADDRESS=127.0.0.1:18980 SLIDEGATE_ADMIN_ADDRESS=127.0.0.1:18981 \
			"$work/rls" >"$work/log" 2>&1 &
		rls_pid=$!
		until curl --silent --fail --output "$work/ready" http://127.0.0.1:18980/readyz; do
			if ! kill -0 "$rls_pid" 2>/dev/null || [ $(($(date +%s%N) - began)) -gt 30000000000 ]; then
				fail "rls becomes ready (round $round)" "$(tail -5 "$work/log")"
				return
			fi
		done
		all+=($((($(date +%s%N) - began) / 1000000)))
		kill -TERM "$rls_pid"
		kill -TERM "$rls_pid" 2>/dev/null # a second signal ends the drain
		wait "$rls_pid" 2>/dev/null
		rls_pid=
	done
	local median
	median=$(printf '%s\n' "${all[@]}" | sort -n | sed -n 6p)
	echo "      start to ready, ms, 11 rounds: ${all[*]}; median $median (a machine that does nothing else: at most 300)"
	if [ "$median" -le 3000 ]; then pass "start to ready: $median ms"; else fail "start to ready within 3 s" "$median ms"; fi
}

main() {
	cd "$repo" || exit 2
	work=$(mktemp -d "${TMPDIR:-/tmp}/slidegate-release.XXXXXX")
	trap finish EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM HUP
	unset "${!SLIDEGATE_@}"
	arch=$(go env GOHOSTARCH)
	# Without a remote goreleaser knows neither commit nor date. This adds one for these commands only.
	[ -n "$(git remote)" ] || export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=remote.origin.url GIT_CONFIG_VALUE_0=https://github.com/slidegate/slidegate
	make_release
	platforms=(linux_amd64 linux_arm64 linux_armv7 darwin_amd64 darwin_arm64 windows_amd64 windows_arm64)
	[ "$mode" != quick ] || platforms=("linux_$arch")
	mapfile -t debs < <(cd "$dist" && printf '%s\n' *_"$arch".deb && ls | grep '\.deb$' | grep -v "_$arch.deb")
	mapfile -t rpms < <(cd "$dist" && ls | grep '\.rpm$')
	check_files
	check_binaries
	check_sboms
	check_man_and_completions
	check_packages
	check_unit
	check_cask
	check_figures
}

main
