# Replaces postgres:16 by Debian's PostgreSQL 15. As in the original, uid and gid are 999, PGDATA is a volume with the data, and the
# server's tools are in PATH. The server listens on all addresses and shuts down fast. postgres-entrypoint.sh replaces the entrypoint.
FROM debian:bookworm-slim
ENV LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin
# hadolint ignore=DL3008 # it takes the current server of Debian
RUN groupadd -r -g 999 postgres && useradd -r -g postgres -u 999 -d /var/lib/postgresql postgres \
 && mkdir -p /etc/postgresql-common && echo 'create_main_cluster = false' >/etc/postgresql-common/createcluster.conf \
 && apt-get update \
 && apt-get install -y --no-install-recommends postgresql-15 \
 && rm -rf /var/lib/apt/lists/* \
 && sed -i "s/^#listen_addresses = 'localhost'/listen_addresses = '*'/" /usr/share/postgresql/15/postgresql.conf.sample \
 && grep -q "^listen_addresses = '\*'" /usr/share/postgresql/15/postgresql.conf.sample \
 && mkdir -p /docker-entrypoint-initdb.d "$PGDATA" && chown postgres:postgres "$PGDATA" && chmod 1777 "$PGDATA"
COPY --chmod=755 postgres-entrypoint.sh /usr/local/bin/docker-entrypoint.sh
VOLUME /var/lib/postgresql/data
STOPSIGNAL SIGINT
EXPOSE 5432
ENTRYPOINT ["docker-entrypoint.sh"]
CMD ["postgres"]
