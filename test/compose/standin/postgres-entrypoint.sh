#!/usr/bin/env bash
# What the compose stack needs of the original's entrypoint, done as that does it: the first start makes a cluster with a superuser and a
# database, and runs the scripts while nobody can connect over TCP. It becomes no other user, and runs SQL alone.
set -euo pipefail

[ -s "$PGDATA/PG_VERSION" ] && exec "$@"

user=${POSTGRES_USER:-postgres}
database=${POSTGRES_DB:-$user}
sql() { psql -v ON_ERROR_STOP=1 --no-psqlrc --no-password --username "$user" "$@"; }

chmod 700 "$PGDATA"
initdb --username="$user" --pwfile="${POSTGRES_PASSWORD_FILE:?the superuser needs a password}"
printf '\nhost all all all scram-sha-256\n' >>"$PGDATA/pg_hba.conf"
pg_ctl -o "-c listen_addresses=''" -w start
[ "$database" = postgres ] || sql --dbname postgres --set name="$database" <<<'CREATE DATABASE :"name";'
for script in /docker-entrypoint-initdb.d/*; do
	case $script in
	*.sql) sql --dbname "$database" --file "$script" ;;
	*) echo "$script: this stand-in runs .sql alone" >&2 && exit 1 ;;
	esac
done
pg_ctl -m fast -w stop
exec "$@"
