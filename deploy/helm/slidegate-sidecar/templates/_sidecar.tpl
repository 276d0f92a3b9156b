{{/*
What an application's chart includes. All take the root context:

  slidegate-sidecar.initContainers   rls and Envoy, as native sidecars
  slidegate-sidecar.volumes          their volumes
  slidegate-sidecar.podAnnotations   a checksum, so that a change of Envoy's configuration replaces the pods
  slidegate-sidecar.lifecycle        the preStop of the application's container
  slidegate-sidecar.configMaps       the ConfigMaps, as manifests
  slidegate-sidecar.port             the port that the Service sends requests to

README.md has an example.
*/}}

{{- define "slidegate-sidecar.name" -}}
{{ .Release.Name | trunc 46 | trimAll "-." }}-slidegate
{{- end }}

{{- define "slidegate-sidecar.port" -}}
{{ (index .Values "slidegate-sidecar").envoy.port }}
{{- end }}

{{- define "slidegate-sidecar.image" -}}
{{ .repository }}:{{ .tag }}{{ with .digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "slidegate-sidecar.labels" -}}
app.kubernetes.io/name: slidegate
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: ratelimit
app.kubernetes.io/part-of: slidegate
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/*
The sidecars are native ones: init containers that keep running. Kubernetes starts them in this order,
each when the one before it has started, and then the application. It stops them in the opposite order:
  - rls answers before Envoy starts, so no request passes without a limit at the start.
  - Envoy stops after the application, which can finish the requests that it has.
  - rls stops last.
*/}}
{{- define "slidegate-sidecar.initContainers" -}}
{{- include "slidegate-sidecar.validate" . -}}
{{- include "slidegate-sidecar.rls" . }}
{{ include "slidegate-sidecar.envoy" . }}
{{- end }}

{{- define "slidegate-sidecar.rls" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
- name: rls
  image: {{ include "slidegate-sidecar.image" $v.image }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  restartPolicy: Always
  env: {{- include "slidegate-sidecar.env" . | nindent 2 }}
  resources: {{- toYaml $v.resources | nindent 4 }}
  # Envoy starts when this has succeeded once. If the rules are broken, rls ends with a message instead.
  startupProbe:
    exec: {command: [/rls, healthcheck]}
    periodSeconds: 1
    timeoutSeconds: 5
    failureThreshold: 60
  # A restart loses the logs in memory, and the pod gets no requests from Services until rls is back. So
  # only an rls that has hung for a minute is restarted. The answer does not depend on Redis.
  livenessProbe:
    exec: {command: [/rls, healthcheck]}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  # No readiness probe: while rls does not answer, Envoy lets requests pass, and the application serves.
  securityContext: {{- include "slidegate-sidecar.securityContext" 65532 | nindent 4 }}
  volumeMounts:
  - {name: slidegate-socket, mountPath: /run/rls}
  # Folders: a file that is mounted alone (subPath) never changes.
  - {name: slidegate-rules, mountPath: /etc/slidegate/rules, readOnly: true}
  {{- if include "slidegate-sidecar.hasTiers" . }}
  - {name: slidegate-tiers, mountPath: /etc/slidegate/tiers, readOnly: true}
  {{- end }}
  {{- if and $v.redis.existingSecret $v.redis.secretKeys.password }}
  - {name: slidegate-redis, mountPath: /etc/slidegate/redis, readOnly: true}
  {{- end }}
{{- end }}

{{- define "slidegate-sidecar.env" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
- {name: SLIDEGATE_GRPC_ADDRESS, value: "unix:///run/rls/grpc.sock"}
# Envoy has the group of rls, and no other container has the volume.
- {name: SLIDEGATE_GRPC_SOCKET_MODE, value: "0660"}
# No HTTP port: in a pod it would be open to the cluster, where every client could spend the limits of
# others. The probes use the socket. The admin port (6070) is for kubectl port-forward only.
- {name: SLIDEGATE_HTTP_ADDRESS, value: ""}
- {name: SLIDEGATE_RULES_PATH, value: /etc/slidegate/rules}
{{- if $v.rules.shadowMode }}
- {name: SLIDEGATE_RULES_SHADOW_MODE, value: "true"}
{{- end }}
{{- if include "slidegate-sidecar.hasTiers" . }}
- {name: SLIDEGATE_TIERS_PATH, value: /etc/slidegate/tiers/tiers.yaml}
{{- end }}
{{- with $v.secrets.existingSecret }}
- name: SLIDEGATE_SECRETS_KEY
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: {{ $v.secrets.key | quote }}}}
{{- end }}
# When rls gets its signal to stop, Envoy has ended already: there is nothing to wait for.
- {name: SLIDEGATE_DRAIN_DELAY, value: 0s}
- {name: SLIDEGATE_DRAIN_TIMEOUT, value: 3s}
{{- if or $v.redis.url $v.redis.existingSecret }}
{{ include "slidegate-sidecar.redisEnv" . }}
{{- else }}
# What the logs of callers may take. The limit is twice that and 64 MiB, because Go's garbage collector
# needs up to as much again.
- name: SLIDEGATE_STORE_MEMORY_MAX_BYTES
  valueFrom: {resourceFieldRef: {containerName: rls, resource: requests.memory}}
{{- end }}
# 95 % of the limit: its number of MiB with six zeros.
- name: MEMORY_LIMIT_MIB
  valueFrom: {resourceFieldRef: {containerName: rls, resource: limits.memory, divisor: 1Mi}}
- {name: GOMEMLIMIT, value: "$(MEMORY_LIMIT_MIB)000000"}
# No more threads than CPUs, so that the kernel does not stop rls in the middle of a call.
- name: GOMAXPROCS
  valueFrom: {resourceFieldRef: {containerName: rls, resource: limits.cpu}}
{{- range $name, $value := $v.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- define "slidegate-sidecar.redisEnv" -}}
{{- $redis := (index .Values "slidegate-sidecar").redis -}}
- {name: SLIDEGATE_STORE_TYPE, value: redis}
{{- if $redis.url }}
- {name: SLIDEGATE_STORE_REDIS_URL, value: {{ $redis.url | quote }}}
{{- else }}
- name: SLIDEGATE_STORE_REDIS_URL
  valueFrom: {secretKeyRef: {name: {{ $redis.existingSecret | quote }}, key: {{ $redis.secretKeys.url | quote }}}}
{{- end }}
{{- if and $redis.existingSecret $redis.secretKeys.username }}
- name: SLIDEGATE_STORE_REDIS_USERNAME
  valueFrom: {secretKeyRef: {name: {{ $redis.existingSecret | quote }}, key: {{ $redis.secretKeys.username | quote }}, optional: true}}
{{- end }}
{{- if and $redis.existingSecret $redis.secretKeys.password }}
# A file: rls reads it for each new connection, so the password can change without a restart.
- {name: SLIDEGATE_STORE_REDIS_PASSWORD_FILE, value: /etc/slidegate/redis/password}
{{- end }}
{{- end }}

{{- define "slidegate-sidecar.envoy" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
- name: envoy
  image: {{ include "slidegate-sidecar.image" $v.envoy.image }}
  imagePullPolicy: {{ $v.envoy.image.pullPolicy }}
  restartPolicy: Always
  # Not the entrypoint of the image, which begins as root.
  command: [envoy, --config-path, /etc/envoy/envoy.yaml, --concurrency, {{ $v.envoy.concurrency | quote }}, --disable-hot-restart, --log-level, warn]
  ports:
  - {name: envoy, containerPort: {{ $v.envoy.port }}}
  resources: {{- toYaml $v.envoy.resources | nindent 4 }}
  # The port opens when Envoy has its configuration.
  startupProbe: {tcpSocket: {port: {{ $v.envoy.port }}}, periodSeconds: 1, failureThreshold: 60}
  readinessProbe: {tcpSocket: {port: {{ $v.envoy.port }}}, periodSeconds: 5}
  lifecycle:
    preStop:
      # When the pod begins to stop, Envoy asks its clients to close their connections: after the next
      # answer, they connect to another pod. Envoy itself stops after the application. Without bash in
      # the image (distroless), this does nothing.
      exec:
        command:
        - bash
        - -c
        - exec 3<>/dev/tcp/127.0.0.1/9901 && printf 'POST /healthcheck/fail HTTP/1.1\r\nhost:envoy\r\ncontent-length:0\r\nconnection:close\r\n\r\n' >&3 && read -r _ <&3
  securityContext: {{- include "slidegate-sidecar.securityContext" 101 | nindent 4 }}
  volumeMounts:
  # Read-only: Envoy connects to the socket, and cannot replace it.
  - {name: slidegate-socket, mountPath: /run/rls, readOnly: true}
  - {name: slidegate-envoy, mountPath: /etc/envoy, readOnly: true}
{{- end }}

{{/* Call it with a user's number. The group is that of rls, for its socket. */}}
{{- define "slidegate-sidecar.securityContext" -}}
runAsUser: {{ . }}
runAsGroup: 65532
runAsNonRoot: true
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The application must serve some seconds after the pod begins to stop, because Services still send
requests to it. */}}
{{- define "slidegate-sidecar.lifecycle" -}}
preStop: {sleep: {seconds: {{ (index .Values "slidegate-sidecar").preStopSeconds }}}}
{{- end }}

{{/* Not empty if the tiers come from a file, or the names of tiers do. */}}
{{- define "slidegate-sidecar.hasTiers" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
{{- $source := dig "SLIDEGATE_TIERS_SOURCE" "file" ($v.env | default dict) | toString }}
{{- if or (eq $source "file") $v.tiers.file $v.tiers.existingConfigMap }}yes{{ end }}
{{- end }}

{{/* The tiers of rls's built-in example, without its subjects: their API keys are public. */}}
{{- define "slidegate-sidecar.noSubjects" -}}
tiers: [free, starter, pro]
default: free
subjects: []
{{- end }}

{{- define "slidegate-sidecar.volumes" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
{{- $name := include "slidegate-sidecar.name" . -}}
- name: slidegate-socket
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: slidegate-envoy
  configMap: {name: {{ $name }}-envoy}
- name: slidegate-rules
  configMap: {name: {{ $v.rules.existingConfigMap | default (printf "%s-rules" $name) | quote }}}
{{- if include "slidegate-sidecar.hasTiers" . }}
- name: slidegate-tiers
  configMap: {name: {{ $v.tiers.existingConfigMap | default (printf "%s-tiers" $name) | quote }}}
{{- end }}
{{- if and $v.redis.existingSecret $v.redis.secretKeys.password }}
- name: slidegate-redis
  secret:
    secretName: {{ $v.redis.existingSecret | quote }}
    items: [{key: {{ $v.redis.secretKeys.password | quote }}, path: password}]
{{- end }}
{{- end }}

{{/* Envoy reads its configuration once. rls reads rules and tiers again, so they have no checksum. */}}
{{- define "slidegate-sidecar.podAnnotations" -}}
checksum/slidegate-envoy: {{ include "slidegate-sidecar.config" . | sha256sum }}
{{- end }}

{{- define "slidegate-sidecar.config" -}}
{{- (index .Values "slidegate-sidecar").envoy.config | default (include "slidegate-sidecar.envoyConfig" .) }}
{{- end }}

{{- define "slidegate-sidecar.configMaps" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
{{- $name := include "slidegate-sidecar.name" . -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-envoy
  labels: {{- include "slidegate-sidecar.labels" . | nindent 4 }}
data:
  {{- dict "envoy.yaml" (include "slidegate-sidecar.config" .) | toYaml | nindent 2 }}
{{- if $v.rules.files }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-rules
  labels: {{- include "slidegate-sidecar.labels" . | nindent 4 }}
data:
  {{- toYaml $v.rules.files | nindent 2 }}
{{- end }}
{{- if and (include "slidegate-sidecar.hasTiers" .) (not $v.tiers.existingConfigMap) }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}-tiers
  labels: {{- include "slidegate-sidecar.labels" . | nindent 4 }}
data:
  {{- dict "tiers.yaml" ($v.tiers.file | default (include "slidegate-sidecar.noSubjects" .)) | toYaml | nindent 2 }}
{{- end }}
{{- end }}

{{- define "slidegate-sidecar.validate" -}}
{{- $v := index .Values "slidegate-sidecar" -}}
{{- if not (or $v.rules.files $v.rules.existingConfigMap) }}
{{- fail "slidegate-sidecar: there are no rules: set rules.files or rules.existingConfigMap" }}
{{- end }}
{{- if and $v.rules.files $v.rules.existingConfigMap }}
{{- fail "slidegate-sidecar: rules.files and rules.existingConfigMap both give the rules: set only one of them" }}
{{- end }}
{{- if and $v.tiers.file $v.tiers.existingConfigMap }}
{{- fail "slidegate-sidecar: tiers.file and tiers.existingConfigMap both give the tiers: set only one of them" }}
{{- end }}
{{- if contains "@" $v.redis.url }}
{{- fail "slidegate-sidecar: redis.url has a user or a password, and every person that can read the release would see it: put it into a Secret and name it in redis.existingSecret" }}
{{- end }}
{{- $owned := list "SLIDEGATE_GRPC_ADDRESS" "SLIDEGATE_GRPC_SOCKET_MODE" "SLIDEGATE_HTTP_ADDRESS" "SLIDEGATE_RULES_PATH"
  "SLIDEGATE_RULES_SHADOW_MODE" "SLIDEGATE_TIERS_PATH" "SLIDEGATE_SECRETS_KEY_FILE" "SLIDEGATE_STORE_TYPE" "SLIDEGATE_STORE_REDIS_URL"
  "SLIDEGATE_STORE_REDIS_PASSWORD_FILE" }}
{{- range $name, $value := $v.env }}
{{- if and $value (regexMatch "_(PASSWORD|TOKEN|SECRETS_KEY|SECRETS_PREVIOUS_KEY)$" $name) }}
{{- fail (printf "slidegate-sidecar: env.%s is a secret, which anyone who can read the release would see: put it into a Secret, and name it in redis.existingSecret or secrets.existingSecret" $name) }}
{{- end }}
{{- if regexMatch "://[^/?#]*:[^/?#]*@" (toString $value) }}
{{- fail (printf "slidegate-sidecar: env.%s has a password, which anyone who can read the release would see" $name) }}
{{- end }}
{{- if has $name $owned }}
{{- fail (printf "slidegate-sidecar: env.%s is decided by another value of the chart: remove it" $name) }}
{{- end }}
{{- end }}
{{- if eq (int $v.envoy.port) (int $v.application.port) }}
{{- fail (printf "slidegate-sidecar: Envoy and the application share the addresses of the pod, and both have port %d: change application.port or envoy.port" (int $v.envoy.port)) }}
{{- end }}
{{- range list (int $v.envoy.port) (int $v.application.port) }}
{{- if has . (list 6070 9901) }}
{{- fail (printf "slidegate-sidecar: port %d is taken in the pod, by the admin port of rls (6070) or of Envoy (9901): choose another one" .) }}
{{- end }}
{{- end }}
{{- if and $v.envoy.config (ne (int $v.application.port) 8000) }}
{{- fail "slidegate-sidecar: envoy.config is the whole configuration of Envoy, so application.port has no effect: write the port there, and remove application.port" }}
{{- end }}
{{- end }}
