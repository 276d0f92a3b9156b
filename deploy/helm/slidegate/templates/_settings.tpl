{{/* The settings file: what the values say, then .Values.settings. */}}
{{- define "slidegate.settings" -}}
{{- toYaml (mustMergeOverwrite (include "slidegate.ownSettings" . | fromYaml) (deepCopy .Values.settings)) }}
{{- end }}

{{- define "slidegate.ownSettings" -}}
{{- $redis := eq (include "slidegate.store" .) "redis" -}}
grpc:
  {{- if include "slidegate.socket" . }}
  # The socket is for the probes.
  address: [":8081", "unix:///run/rls/grpc.sock"]
  {{- else }}
  address: [":8081"]
  {{- end }}
  {{- if .Values.tls.enabled }}
  # A certificate is checked when a connection opens. So connections must end from time to time, or a
  # client whose certificate has expired would stay.
  max_connection_age: 30m
  tls:
    cert_file: /etc/slidegate/tls/tls.crt
    key_file: /etc/slidegate/tls/tls.key
    {{- if .Values.tls.clientCertificates }}
    client_ca_file: /etc/slidegate/tls/ca.crt
    {{- end }}
    {{- with include "slidegate.clientSAN" . }}
    client_san: {{ . | quote }}
    {{- end }}
  {{- end }}
http:
  # With client certificates there is no HTTP port: its /json would spend quotas without one.
  address: {{ eq (include "slidegate.socket" .) "yes" | ternary "" ":8080" | quote }}
admin:
  {{- if .Values.admin.peers.existingSecret }}
  # Other pods ask there. Everything else needs a token.
  address: ":6070"
  peers_key_file: /etc/slidegate/peers/key
  {{- else }}
  address: 127.0.0.1:6070
  {{- end }}
  {{- if .Values.admin.tokens.existingSecret }}
  token_file: /etc/slidegate/admin/tokens
  {{- end }}
{{- if .Values.monitoring.enabled }}
metrics:
  # A port with /metrics and no other page. Prometheus needs no way to the admin port: its pages show
  # rules and customers, take profiles, and can change what rls remembers.
  address: ":9102"
{{- end }}
{{- if include "slidegate.ruleFiles" . }}
rules:
  path: /etc/slidegate/rules
  {{- if .Values.rules.shadowMode }}
  shadow_mode: true
  {{- end }}
{{- end }}
{{- if include "slidegate.tierFile" . }}
tiers:
  path: /etc/slidegate/tiers/tiers.yaml
{{- end }}
{{- if .Values.secrets.existingSecret }}
secrets:
  key_file: /etc/slidegate/secrets/key
  {{- if .Values.secrets.previousKey }}
  previous_key_file: /etc/slidegate/secrets/previous-key
  {{- end }}
{{- end }}
store:
  type: {{ include "slidegate.store" . }}
  {{- if $redis }}
  {{- include "slidegate.redisSettings" . | nindent 2 }}
  {{- else }}
  memory:
    # A quarter of the default limit of memory: Go's garbage collector needs up to as much again.
    max_bytes: 67108864
  {{- end }}
drain:
  delay: {{ .Values.drain.delaySeconds }}s
  timeout: {{ .Values.drain.timeoutSeconds }}s
  # Envoys with health checks keep an address that DNS no longer has, as long as it is healthy. This
  # tells them at once. It is safe only if there are other pods.
  not_serving: {{ and $redis (or .Values.autoscaling.enabled (gt (include "slidegate.replicas" . | int) 1)) | ternary "true" "false" }}
{{- end }}

{{- define "slidegate.redisSettings" -}}
redis:
  {{- if .Values.redis.enabled }}
  url: redis://{{ include "slidegate.fullname" . }}-redis:6379
  {{- else if .Values.redis.url }}
  url: {{ .Values.redis.url | quote }}
  {{- end }}
  {{- if and .Values.redis.existingSecret .Values.redis.secretKeys.password }}
  password_file: /etc/slidegate/redis/password
  {{- end }}
  {{- if and .Values.redis.existingSecret .Values.redis.secretKeys.sentinelPassword }}
  sentinel_password_file: /etc/slidegate/redis/sentinel-password
  {{- end }}
  {{- if .Values.redis.tls.existingSecret }}
  tls:
    ca_file: /etc/slidegate/redis-tls/ca.crt
    {{- if .Values.redis.tls.clientCertificate }}
    cert_file: /etc/slidegate/redis-tls/tls.crt
    key_file: /etc/slidegate/redis-tls/tls.key
    {{- end }}
  {{- end }}
{{- end }}
