{{/* The settings file: what the values say, then .Values.settings. */}}
{{- define "slidegate.settings" -}}
{{- toYaml (mustMergeOverwrite (include "slidegate.ownSettings" . | fromYaml) (deepCopy .Values.settings)) }}
{{- end }}

{{- define "slidegate.ownSettings" -}}
{{- $redis := eq (include "slidegate.store" .) "redis" -}}
grpc:
  address: [":8081"]
  {{- if .Values.tls.enabled }}
  tls:
    cert_file: /etc/slidegate/tls/tls.crt
    key_file: /etc/slidegate/tls/tls.key
    {{- if .Values.tls.clientCertificates }}
    client_ca_file: /etc/slidegate/tls/ca.crt
    {{- end }}
    {{- with .Values.tls.clientSAN }}
    client_san: {{ . | quote }}
    {{- end }}
  {{- end }}
http:
  address: ":8080"
admin:
  address: {{ .Values.monitoring.enabled | ternary ":6070" "127.0.0.1:6070" | quote }}
  {{- if and .Values.monitoring.enabled .Values.dropIn.enabled }}
  pages: all
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
  # While Redis is away, each pod admits this share of a limit. The largest number of pods: then all
  # together never admit more than the limit.
  replicas: {{ .Values.autoscaling.enabled | ternary (int .Values.autoscaling.maxReplicas) (include "slidegate.replicas" . | int) }}
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
  tls:
    {{- if .Values.redis.tls.existingSecret }}
    ca_file: /etc/slidegate/redis-tls/ca.crt
    {{- if .Values.redis.tls.clientCertificate }}
    cert_file: /etc/slidegate/redis-tls/tls.crt
    key_file: /etc/slidegate/redis-tls/tls.key
    {{- end }}
    {{- end }}
    {{- with .Values.redis.tls.serverName }}
    server_name: {{ . | quote }}
    {{- end }}
    system_cas: {{ .Values.redis.tls.systemCAs }}
    any_name: {{ .Values.redis.tls.anyName }}
{{- end }}
