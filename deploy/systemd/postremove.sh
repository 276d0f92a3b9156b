#!/bin/sh
# After the files are removed. Debian's purge removes what the service wrote, too.
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/private/slidegate /var/lib/slidegate
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload || true
