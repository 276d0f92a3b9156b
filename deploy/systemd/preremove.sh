#!/bin/sh
# Before the files are removed, but not if a new version replaces them.
set -e
[ -d /run/systemd/system ] || exit 0
case "$1" in
remove | 0) systemctl disable --now rls.service || true ;;
esac
