# Stands in for envoyproxy/envoy, which is an Ubuntu base with the binary in it: bash and coreutils are there, curl and wget are not.
# The original's entrypoint only drops root; a container that is started as another user passes it by, and ours is.
FROM debian:bookworm-slim
RUN mkdir -p /etc/envoy && groupadd -r -g 101 envoy && useradd -r -g envoy -u 101 envoy
COPY --chmod=755 envoy /usr/local/bin/envoy
EXPOSE 10000
CMD ["envoy", "-c", "/etc/envoy/envoy.yaml"]
