# Stands in for redis:7. As in the original: uid and gid 999, data in /data, a data volume, the server's tools in PATH. Debian's
# server keeps protected mode on by default, the original does not: a compose file that relies on either default fails on one of them.
FROM debian:bookworm-slim
# hadolint ignore=DL3008 # a stand-in takes the server that Debian has today
RUN groupadd -r -g 999 redis && useradd -r -g redis -u 999 redis \
 && apt-get update \
 && apt-get install -y --no-install-recommends redis-server redis-tools \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir /data && chown redis:redis /data
VOLUME /data
WORKDIR /data
EXPOSE 6379
CMD ["redis-server"]
