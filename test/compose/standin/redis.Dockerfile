# Replaces redis:7. As in the original, uid and gid are 999, /data is a volume with the data, and the server's tools are in PATH.
# By default, protected mode is on in Debian's server and off in the original. A compose file must not rely on either default.
FROM debian:bookworm-slim
# hadolint ignore=DL3008 # it takes the current server of Debian
RUN groupadd -r -g 999 redis && useradd -r -g redis -u 999 redis \
 && apt-get update \
 && apt-get install -y --no-install-recommends redis-server redis-tools \
 && rm -rf /var/lib/apt/lists/* \
 && mkdir /data && chown redis:redis /data
VOLUME /data
WORKDIR /data
EXPOSE 6379
CMD ["redis-server"]
