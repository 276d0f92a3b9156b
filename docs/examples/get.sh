#!/bin/sh
# Gets a URL, and waits as the rate limit says.
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

# field NAME: the first value of a field of the response, in lower case.
field() { tr -d '\r' <"$files/head" | tr '[:upper:]' '[:lower:]' | sed -n "s/^$1: *//p" | head -n 1; }

# unix DATE: an HTTP date as seconds since 1970. Nothing if it is no date.
unix() {
  # shellcheck disable=SC2046 # words are split on purpose
  set -- $(printf '%s\n' "$1" | sed -n 's/^[a-z]\{3\}, 0\{0,1\}\([0-9]*\) \([a-z]\{3\}\) \([1-9][0-9]\{3\}\) 0\{0,1\}\([0-9]\{1,2\}\):0\{0,1\}\([0-9]\{1,2\}\):0\{0,1\}\([0-9]\{1,2\}\) gmt$/\1 \2 \3 \4 \5 \6/p')
  [ $# = 6 ] || return 0
  months=maraprmayjunjulaugsepoctnovdecjanfeb
  before=${months%"$2"*}
  [ "$before" != "$months" ] || return 0
  month=$((${#before} / 3)) # March is 0
  year=$(($3 - (month > 9)))
  day=$((365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + $1 - 719469))
  echo $((day * 86400 + $4 * 3600 + $5 * 60 + $6))
}

left=$((MAX_WAIT * 1000)) # milliseconds
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT

bound=0 # of the random part, in milliseconds
while :; do
  status=$(curl -sS -D "$files/head" -o "$files/body" -w '%{http_code}' "$@" "$url")
  [ "$status" = 429 ] || break
  wait=$(field retry-after)
  case $wait in
    '' | *[!0-9]*)
      at=$(unix "$wait")
      now=$(unix "$(field date)") # by the clock of the server
      wait=${at:+$((at - ${now:-$(date +%s)}))}
      [ "${wait:-0}" -ge 0 ] || wait=0
      ;;
    ?????????*) wait= ;; # years
  esac
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
