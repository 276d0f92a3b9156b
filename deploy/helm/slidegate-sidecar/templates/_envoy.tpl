{{/* envoy/sidecar-uds.yaml of the repository, with two ports from the values. A test compares them. */}}
{{- define "slidegate-sidecar.envoyConfig" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
# Envoy as the sidecar of one application. It asks an rls in the same pod over a unix socket.
#
#   gateway or another service ──▶ Envoy :10000 ──▶ the application, 127.0.0.1:8000
#                                      └── ShouldRateLimit ──▶ rls, /run/rls/grpc.sock
#
# A socket file needs no network stack, cannot be reached from outside the pod, and has file permissions. Both
# containers mount one volume at /run/rls. Start rls with
#
#   SLIDEGATE_GRPC_ADDRESS=unix:///run/rls/grpc.sock
#   SLIDEGATE_GRPC_SOCKET_MODE=0660        (0666 if Envoy's user shares no group with the user of rls)
#
# With the memory store the limits are those of this one pod. For limits that all pods share, give every rls the same
# Redis. The application is not on 8080 here, because the HTTP port of rls is, and a pod has one set of ports.
#
# The descriptors are those of ratelimit.yaml, which explains the rest. The comments below are about what differs
# inside a mesh.
#
# Written for Envoy 1.40; tested with 1.40.0, 1.38.3 and 1.36.4.

node:
  id: sidecar
  cluster: app

# The admin interface can stop the proxy and print every secret of its configuration: open it on loopback
# only.
admin:
  address:
    socket_address: {address: 127.0.0.1, port_value: 9901}

# Without a bound on client connections, a connection flood takes all file descriptors or memory of the proxy,
# and the rate limits fail with it.
overload_manager:
  resource_monitors:
  - name: envoy.resource_monitors.global_downstream_max_connections
    typed_config:
      "@type": type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig
      max_active_downstream_connections: 10000

static_resources:
  listeners:
  - name: ingress
    address:
      socket_address: {address: 0.0.0.0, port_value: {{ $v.envoy.port }}}
    # With the default, 1 MiB, slow readers on many connections take the memory of the proxy.
    per_connection_buffer_limit_bytes: 65536
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress

          # The address that is limited. The TCP peer of a sidecar is the gateway, or another service of the mesh. Limiting by
          # it would put all clients on one address. So Envoy trusts the peer and takes the last address in X-Forwarded-For.
          # A gateway with use_remote_address: true appends that address itself. This is safe while only peers of the mesh can
          # connect to this port (mTLS with an authorization policy, or a NetworkPolicy). A client that reaches the port
          # directly writes the header, and has a new address for every request.
          #   xff_num_trusted_hops: 0   client ─▶ gateway ─▶ here: the gateway appended the client's address
          #   xff_num_trusted_hops: 1   client ─▶ load balancer ─▶ gateway ─▶ here: the gateway appended the balancer's address;
          #                             the client's address is the one before it
          # A call from inside the mesh without the header is limited by its peer address, which is that service's pod.
          use_remote_address: false
          xff_num_trusted_hops: 0

          # The gateway does the same, but not for calls from inside the mesh.
          normalize_path: true
          merge_slashes: true
          path_with_escaped_slashes_action: REJECT_REQUEST

          common_http_protocol_options:
            # Many applications read x_api_key and x-api-key as one header. The limits below know only the
            # second.
            headers_with_underscores_action: REJECT_REQUEST
            # With 0s, an idle connection stays for good.
            idle_timeout: 3600s
          # Slow clients hold memory. So headers must arrive in time, and an idle stream ends.
          request_headers_timeout: 10s
          stream_idle_timeout: 300s

          # This file reads no tier from a header, and the application should not either: in a mesh any
          # service could send one. If the gateway sets these headers itself after authentication, remove the
          # two lines.
          early_header_mutation_extensions:
          - name: client-headers
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation
              mutations:
              # Some servers pass x.api.key to a CGI program or to PHP like x-api-key: they replace all
              # characters but letters and digits by "_".
              - remove_on_match: {key_matcher: {safe_regex: {regex: '.*[^a-z0-9_:-].*'}}}
              # Only a trusted hop may set these headers. Here they come from the client.
              - remove: x-tier
              - remove: x-consumer-id
              # Some frameworks serve the path in these headers instead of the path that Envoy has matched.
              - remove: x-original-url
              - remove: x-rewrite-url
              # The application sees the key that is counted.
              - append:
                  header: {key: x-api-key, value: "%REQ(x-api-key)%"}
                  append_action: OVERWRITE_IF_EXISTS
                  keep_empty_value: true

          access_log:
          - name: envoy.access_loggers.stdout
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog
              log_format:
                json_format:
                  time: "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%"
                  client: "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"
                  method: "%REQ(:METHOD)%"
                  path: "%PATH(NQ)%"
                  protocol: "%PROTOCOL%"
                  status: "%RESPONSE_CODE%"
                  grpc_status: "%GRPC_STATUS_NUMBER%"
                  flags: "%RESPONSE_FLAGS%"
                  details: "%RESPONSE_CODE_DETAILS%"
                  rule: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:rule)%"
                  tier: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:tier)%"
                  subject: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:subject)%"
                  key_digest: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:key_digest)%"
                  limit: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:limit)%"
                  remaining: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:remaining)%"
                  retry_after: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:retry_after)%"
                  # The rule that would have denied, if it were enforced. true: rls decided without its store.
                  shadowed: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:shadowed)%"
                  degraded: "%DYNAMIC_METADATA(envoy.filters.http.ratelimit:degraded)%"
                  duration_ms: "%DURATION%"
                  upstream: "%UPSTREAM_HOST%"
                  request_id: "%REQ(X-REQUEST-ID)%"

          route_config:
            name: inbound
            virtual_hosts:
            - name: app
              domains: ["*"]
              # Without this line the client gets the application's headers about limits and those of rls.
              response_headers_to_remove: [ratelimit, ratelimit-policy]
              # For web pages of other origins: name them, such as [{exact: "https://app.example.com"}]. Envoy then
              # answers their preflights (OPTIONS) itself, without asking rls. Other origins get nothing.
              typed_per_filter_config:
                envoy.filters.http.cors:
                  "@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.CorsPolicy
                  allow_origin_string_match: []
                  allow_methods: "GET, HEAD, POST, PUT, PATCH, DELETE"
                  allow_headers: "authorization, content-type, x-api-key"
                  expose_headers: "ratelimit, ratelimit-policy, retry-after, retry-after-ms, x-should-retry"
                  max_age: "600"
              routes:
              # This line refuses (400) paths that an application may read in another way than Envoy;
              # ratelimit.yaml explains it. Remove it if your clients need such paths and your application
              # reads them as Envoy does.
              - {name: ambiguous-path, match: {safe_regex: {regex: '(?i).*(;|%(3b|25[0-9a-f]{2}|[01]|7f|c[01]|e0%[89]|f0%8|[0-9a-f]?([^0-9a-f]|$))|/(\.[.%]|(%20)+/)).*'}}, direct_response: {status: 400}}
              - name: search
                match: {safe_regex: {regex: '(?i)/search([^a-z0-9_-].*)?'}}
                route: {cluster: upstream, timeout: 15s}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions:
                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}
                    - actions:
                      - generic_key: {descriptor_key: route, descriptor_value: search}
                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}
                    # The address as explained above. If the peer is a unix socket and X-Forwarded-For is
                    # missing, there is no address, and Envoy sends no such descriptor. The request is then
                    # limited by its key alone.
                    - actions:
                      - remote_address: {}
              - name: login
                match: {safe_regex: {regex: '(?i)/login([^a-z0-9_-].*)?'}}
                route: {cluster: upstream, timeout: 15s}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions:
                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}
                    - actions:
                      - remote_address: {}
                    - actions:
                      - generic_key: {descriptor_key: route, descriptor_value: login}
                      - remote_address: {}
              - name: everything-else
                match: {prefix: /}
                route: {cluster: upstream, timeout: 15s}
                typed_per_filter_config:
                  envoy.filters.http.ratelimit:
                    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
                    rate_limits:
                    - actions:
                      - request_headers: {header_name: x-api-key, descriptor_key: api_key}
                    - actions:
                      - remote_address: {}

          http_filters:
          # Before all filters that ask rls: a browser sends preflights without a credential.
          - name: envoy.filters.http.cors
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors
          - name: envoy.filters.http.ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: edge
              # A unix socket needs no time for the network, but rls still waits for its store: keep this
              # above store.timeout (15 ms), as at the edge.
              timeout: 0.05s
              # With `true` an outage of rls becomes an outage of the service. Now requests pass without a limit.
              failure_mode_deny: false
              # gRPC clients get RESOURCE_EXHAUSTED. They would retry the default, UNAVAILABLE, at once.
              rate_limited_as_resource_exhausted: true
              # enable_x_ratelimit_headers and enable_retry_after_header stay off: rls sends these headers.
              rate_limit_service:
                transport_api_version: V3
                grpc_service:
                  envoy_grpc: {cluster_name: rls}
                  # Only calls of apply_on_stream_done have a value here: rls records their costs even above the limit.
                  initial_metadata:
                  - {key: x-rls-end, value: "%RESPONSE_CODE_DETAILS%"}
                  # For the log of denials.
                  - {key: x-request-id, value: "%REQ(x-request-id)%"}
          # Over HTTP/2, trailers of a request could set the headers that only rls may set, after every check.
          # gRPC clients send no trailers.
          - name: envoy.filters.http.header_mutation
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation
              mutations:
                request_trailers_mutations:
                - remove_on_match: {key_matcher: {safe_regex: {regex: '.*'}}}
          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router

  clusters:
  - name: upstream
    type: STATIC
    connect_timeout: 0.25s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        use_downstream_protocol_config:
          http2_protocol_options: {}
    load_assignment:
      cluster_name: upstream
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              socket_address: {address: 127.0.0.1, port_value: {{ $v.application.port }}}

  - name: rls
    type: STATIC
    connect_timeout: 0.25s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config:
          http2_protocol_options:
            # A peer on a socket file cannot vanish without closing it, but it can hang.
            connection_keepalive: {interval: 30s, timeout: 5s}
    # The default bound is 1024 calls in flight. If rls is slow for a moment, Envoy soon reaches it, and
    # does not ask rls beyond it.
    circuit_breakers:
      thresholds:
      - priority: DEFAULT
        max_connections: 1024
        max_pending_requests: 8192
        max_requests: 16384
        track_remaining: true
    # Without them Envoy goes on calling an instance that hangs or drains.
    health_checks:
    - grpc_health_check: {service_name: ""}
      timeout: 0.5s
      interval: 2s
      # Without traffic Envoy would check only once a minute.
      no_traffic_interval: 2s
      unhealthy_threshold: 2
      healthy_threshold: 1
    common_lb_config:
      # There is only one instance. While it drains or fails a check, Envoy still calls it. When its process
      # has ended, connections are refused at once and requests pass. With 0 they would pass as soon as it
      # reports NOT_SERVING.
      healthy_panic_threshold: {value: 1}
    load_assignment:
      cluster_name: rls
      endpoints:
      - lb_endpoints:
        - endpoint:
            address:
              pipe: {path: /run/rls/grpc.sock}
{{- end }}
