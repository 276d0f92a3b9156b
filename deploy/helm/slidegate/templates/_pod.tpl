{{/* Spread over zones, and over nodes within a zone. ScheduleAnyway: pods that share a node are better
than a pod that does not start. The hash makes each version spread by itself, so that old pods do not
count in an update. */}}
{{- define "slidegate.spread" -}}
topologySpreadConstraints:
{{- if kindIs "invalid" .Values.topologySpreadConstraints }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "slidegate.selectorLabels" (list $ "ratelimit") | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- else }}
{{- toYaml .Values.topologySpreadConstraints | nindent 0 }}
{{- end }}
{{- end }}

{{- define "slidegate.env" -}}
- {name: SLIDEGATE_CONFIG, value: /etc/slidegate/settings/settings.yaml}
{{- with .Values.redis }}
{{- if and .existingSecret (not .url) }}
- name: SLIDEGATE_STORE_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .secretKeys.url | quote }}}}
{{- end }}
{{- if and .existingSecret .secretKeys.username }}
- name: SLIDEGATE_STORE_REDIS_USERNAME
  valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .secretKeys.username | quote }}, optional: true}}
{{- end }}
{{- end }}
{{- if dig "limits" "memory" "" .Values.resources }}
# Go collects garbage in time to stay below the limit of memory: this is 95 % of the limit, its number
# of MiB with six zeros.
- name: MEMORY_LIMIT_MIB
  valueFrom: {resourceFieldRef: {containerName: rls, resource: limits.memory, divisor: 1Mi}}
- {name: GOMEMLIMIT, value: $(MEMORY_LIMIT_MIB)000000}
{{- end }}
{{- if dig "limits" "cpu" "" .Values.resources }}
# As many threads as it may use CPUs, so that the kernel does not stop it in the middle of a call.
- name: GOMAXPROCS
  valueFrom: {resourceFieldRef: {containerName: rls, resource: limits.cpu}}
{{- end }}
{{- range $name, $value := .Values.dropIn.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Not empty if the Secret of Redis has passwords. */}}
{{- define "slidegate.redisPasswords" -}}
{{- with .Values.redis }}
{{- if and .existingSecret (or .secretKeys.password .secretKeys.sentinelPassword) }}yes{{ end }}
{{- end }}
{{- end }}

{{- define "slidegate.volumes" -}}
- name: settings
  configMap: {name: {{ include "slidegate.fullname" . }}-settings}
{{- if include "slidegate.ruleFiles" . }}
- name: rules
  {{- if include "slidegate.helmTest" . }}
  # One folder from two ConfigMaps.
  projected:
    sources:
    - configMap: {name: {{ include "slidegate.rulesConfigMap" . | quote }}}
    - configMap: {name: {{ include "slidegate.fullname" . }}-helm-test}
  {{- else }}
  configMap: {name: {{ include "slidegate.rulesConfigMap" . | quote }}}
  {{- end }}
{{- end }}
{{- if include "slidegate.tierFile" . }}
- name: tiers
  configMap: {name: {{ include "slidegate.tiersConfigMap" . | quote }}}
{{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "slidegate.tlsSecret" . | quote }}, defaultMode: 0440}
{{- end }}
{{- if include "slidegate.socket" . }}
- name: socket
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
{{- with .Values.secrets }}
{{- if .existingSecret }}
- name: secrets
  secret:
    secretName: {{ .existingSecret | quote }}
    defaultMode: 0440
    items:
    - {key: {{ .key | quote }}, path: key}
    {{- if .previousKey }}
    - {key: {{ .previousKey | quote }}, path: previous-key}
    {{- end }}
{{- end }}
{{- end }}
{{- with .Values.admin.peers }}
{{- if .existingSecret }}
- name: peers
  secret: {secretName: {{ .existingSecret | quote }}, defaultMode: 0440, items: [{key: {{ .key | quote }}, path: key}]}
{{- end }}
{{- end }}
{{- with .Values.admin.tokens }}
{{- if .existingSecret }}
- name: admin
  secret: {secretName: {{ .existingSecret | quote }}, defaultMode: 0440, items: [{key: {{ .key | quote }}, path: tokens}]}
{{- end }}
{{- end }}
{{- if include "slidegate.redisPasswords" . }}
- name: redis
  secret:
    secretName: {{ .Values.redis.existingSecret | quote }}
    defaultMode: 0440
    items:
    {{- with .Values.redis.secretKeys.password }}
    - {key: {{ . | quote }}, path: password}
    {{- end }}
    {{- with .Values.redis.secretKeys.sentinelPassword }}
    - {key: {{ . | quote }}, path: sentinel-password}
    {{- end }}
{{- end }}
{{- with .Values.redis.tls.existingSecret }}
- name: redis-tls
  secret: {secretName: {{ . | quote }}, defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "slidegate.probes" -}}
{{- $socket := include "slidegate.socket" . -}}
# rls is ready within a second. It does not wait for Redis.
startupProbe:
  {{- if $socket }}
  exec: {command: [/rls, healthcheck]}
  {{- else }}
  httpGet: {path: /healthcheck, port: http}
  {{- end }}
  periodSeconds: 1
  timeoutSeconds: 5
  failureThreshold: 60
# It succeeds as long as rls can answer, so that an outage of Redis restarts nothing.
livenessProbe:
  {{- if $socket }}
  exec: {command: [/rls, healthcheck]}
  {{- else }}
  httpGet: {path: /healthcheck, port: http}
  {{- end }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
# It fails while rls stops. It does not look at Redis either: without ready pods Envoy would let every
# request pass.
readinessProbe:
  {{- if $socket }}
  exec: {command: [/rls, healthcheck]}
  {{- else }}
  httpGet: {path: /readyz, port: http}
  {{- end }}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- end }}
