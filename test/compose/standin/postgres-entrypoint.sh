#!/usr/bin/env bash
# Does what the compose stack needs from the entrypoint of the original. The first start makes a cluster with a superuser and a database.
# It runs the scripts while the server does not listen on TCP. It does not change the user, and runs only SQL scripts.
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
	*) echo "$script: this stand-in image runs only .sql files" >&2 && exit 1 ;;
	esac
done
pg_ctl -m fast -w stop
exec "$@"
