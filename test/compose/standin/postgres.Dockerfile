# Stands in for postgres:16 with Debian's PostgreSQL, which is the 15. As in the original: uid and gid 999, data in PGDATA, a data volume,
# the server's tools in PATH, listening everywhere, a fast shutdown. Of the entrypoint it has what postgres-entrypoint.sh says.
FROM debian:bookworm-slim
ENV LANG=C.UTF-8 PGDATA=/var/lib/postgresql/data PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin
# hadolint ignore=DL3008 # a stand-in takes the server that Debian has today
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
