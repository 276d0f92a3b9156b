#!/bin/sh
# After the files are installed. The service is neither enabled nor started: it would serve example
# rules. A new version restarts it, if it runs.
set -e
[ -d /run/systemd/system ] || exit 0
# A package stays installed if systemd refuses: journalctl says why.
systemctl daemon-reload || true
# Debian says "configure OLD-VERSION", and rpm how many versions are installed.
case "$1" in
configure) upgrade=$2 ;;
2) upgrade=yes ;;
*) upgrade= ;;
esac
[ -z "$upgrade" ] || systemctl try-restart rls.service || true
