# Three images from one build:
#
#   docker build -t slidegate/rls .                        the service; the last stage, and so the default
#   docker build -t slidegate/ratelimit --target ratelimit .  the same in place of envoyproxy/ratelimit, for charts that name no command
#   docker build -t slidegate/upstream --target upstream . the echo server of the compose stack and the demo
#
# All are one static binary without a shell, a package manager or a C library, run by a user without a name or a home, and need no
# write access to their root file system. The cache mounts want BuildKit, which every supported Docker has.

FROM golang:1.26 AS build
WORKDIR /src

# The modules alone first: they change seldom, and an edit of the code then leaves this layer as it is.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download

COPY . .
# What `rls version` and the metric of the build say. The build context has no .git, so the caller says it:
#   docker build --build-arg VERSION=0.1.0 --build-arg REVISION=$(git rev-parse HEAD) --build-arg DATE=$(git log -1 --format=%cI) .
ARG VERSION=dev
ARG REVISION=unknown
ARG DATE=unknown
# Static (CGO off), so that it runs on an image without libc; -trimpath and no symbol table, so that the same sources give the same
# bytes wherever they are built. The Makefile says why -gcflags.
ENV CGO_ENABLED=0
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    go build -trimpath -gcflags github.com/redis/go-redis/v9=-l -ldflags "-s -w -X main.version=${VERSION} -X main.commit=${REVISION} -X main.date=${DATE}" -o /out/ ./cmd/rls ./test/upstream
# One binary under two names, in one layer: a second copy would double the image. Under /bin/ratelimit rls reads the environment of
# envoyproxy/ratelimit. Manifests for that image name this command.
RUN mkdir -p /image/bin && mv /out/rls /image/rls && ln -s /rls /image/bin/ratelimit && ln -s /rls /image/bin/slidegate


FROM scratch AS upstream
COPY --from=build /out/upstream /upstream
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=3s --start-period=5s --retries=3 CMD ["/upstream", "-healthcheck"]
ENTRYPOINT ["/upstream"]


# It has the CA certificates and the names of users. The rest, such as the time zones that rls has itself, would make the image larger.
FROM gcr.io/distroless/static-debian12:nonroot AS base


FROM scratch AS service
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Slidegate" \
      org.opencontainers.image.description="Exact sliding-window rate limits for Envoy" \
      org.opencontainers.image.source="https://github.com/slidegate/slidegate" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=base /etc/passwd /etc/group /etc/
COPY --from=base /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /image/ /
# By number: Kubernetes cannot see from a name that it is not root.
USER 65532:65532
# gRPC for Envoy, and HTTP for people. The admin port listens on loopback unless its setting says otherwise.
EXPOSE 8081 8080


FROM service AS ratelimit
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["/bin/ratelimit", "healthcheck"]
ENTRYPOINT ["/bin/ratelimit"]


FROM service AS rls
# The binary asks its own running service, at the address that the settings say: there is nothing else here that could.
HEALTHCHECK --interval=5s --timeout=3s --start-period=10s --retries=3 CMD ["/rls", "healthcheck"]
ENTRYPOINT ["/rls"]
