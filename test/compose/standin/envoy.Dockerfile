# Replaces envoyproxy/envoy, which is Ubuntu with the Envoy binary. It has bash and coreutils, but neither curl nor wget.
# The entrypoint of the original only drops root. The compose file starts the container as another user, so it is not needed.
FROM debian:bookworm-slim
RUN mkdir -p /etc/envoy && groupadd -r -g 101 envoy && useradd -r -g envoy -u 101 envoy
COPY --chmod=755 envoy /usr/local/bin/envoy
EXPOSE 10000
CMD ["envoy", "-c", "/etc/envoy/envoy.yaml"]
