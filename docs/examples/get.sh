#!/bin/sh
# Gets a URL, and waits as the rate limit tells.
#
#   MAX_WAIT=60 ./get.sh URL [options of curl]
#
# It prints the body. Exit codes: 0 for a status below 400; 2 for a wrong command line; 22 for
# another status; 75 if it would have to wait for more than MAX_WAIT seconds in all; otherwise that of
# curl.
set -eu
usage() { echo 'usage: MAX_WAIT=seconds get.sh URL [options of curl]' >&2; exit 2; }
[ $# -gt 0 ] || usage
case ${MAX_WAIT:=60} in *[!0-9]* | 0?*) usage ;; esac
url=$1
shift
left=$((MAX_WAIT * 1000)) # milliseconds
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

bound=0 # of the random part, in milliseconds
while :; do
  status=$(curl -sS -D "$files/head" -o "$files/body" -w '%{http_code}' "$@" "$url")
  [ "$status" = 429 ] || break
  wait=$(tr -d '\r' <"$files/head" | tr '[:upper:]' '[:lower:]' | sed -n 's/^retry-after: *\([0-9]\{1,8\}\)$/\1/p' | head -n 1)
  [ -n "$wait" ] || break # no wait helps
  wait=$((wait * 1000))
  # The first time up to 10 % of the wait, and up to 1 s at least; then up to 2 s, 4 s and so on.
  if [ "$bound" = 0 ]; then
    random_bound=$((wait / 10 > 1000 ? wait / 10 : 1000))
    bound=1000
  else
    random_bound=$((bound * 2 < 60000 ? bound * 2 : 60000))
    bound=$random_bound
  fi
  wait=$((wait + $(od -An -N4 -tu4 /dev/urandom) % random_bound))
  if [ "$wait" -gt "$left" ]; then
    echo "$url: limited for $((wait / 1000)) s, which is too long to wait" >&2
    exit 75
  fi
  left=$((left - wait))
  sleep "$(printf '%d.%03d' $((wait / 1000)) $((wait % 1000)))"
done
cat "$files/body"
[ "$status" -lt 400 ] || { echo "$url: status $status" >&2; exit 22; }
