{{- define "slidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimAll "-" }}
{{- end }}

{{/* The name of the resources. 48 characters leave room for -redis and the hashes of pods. */}}
{{- define "slidegate.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 48 | trimAll "-" }}
{{- else if contains (include "slidegate.name" .) .Release.Name }}
{{- .Release.Name | trunc 48 | trimAll "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "slidegate.name" .) | trunc 48 | trimAll "-" }}
{{- end }}
{{- end }}

{{/* What pods are selected by. It must not change in an upgrade. Call it with (list . "ratelimit"). */}}
{{- define "slidegate.selectorLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "slidegate.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "slidegate.labels" -}}
{{- $root := index . 0 -}}
{{ include "slidegate.selectorLabels" . }}
app.kubernetes.io/part-of: slidegate
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Call it with (list .Values.image .Chart.AppVersion). */}}
{{- define "slidegate.image" -}}
{{- $image := index . 0 -}}
{{- $tag := $image.tag | default (index . 1) -}}
{{ $image.repository }}:{{ $tag }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "slidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "slidegate.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "slidegate.store" -}}
{{- if or .Values.redis.enabled .Values.redis.url .Values.redis.existingSecret }}redis{{ else }}memory{{ end }}
{{- end }}

{{- define "slidegate.replicas" -}}
{{- if kindIs "invalid" .Values.replicas }}{{ eq (include "slidegate.store" .) "redis" | ternary 3 1 }}{{ else }}{{ int .Values.replicas }}{{ end }}
{{- end }}

{{- define "slidegate.rulesConfigMap" -}}
{{ .Values.rules.existingConfigMap | default (printf "%s-rules" (include "slidegate.fullname" .)) }}
{{- end }}

{{- define "slidegate.tiersConfigMap" -}}
{{ .Values.tiers.existingConfigMap | default (printf "%s-tiers" (include "slidegate.fullname" .)) }}
{{- end }}

{{- define "slidegate.tlsSecret" -}}
{{ .Values.tls.existingSecret | default (printf "%s-tls" (include "slidegate.fullname" .)) }}
{{- end }}

{{/* The name that a client's certificate must have; empty: any. With a ClusterIssuer, a release of this
name in another namespace must not have the same. */}}
{{- define "slidegate.clientSAN" -}}
{{- if .Values.tls.clientSAN }}{{ .Values.tls.clientSAN }}
{{- else if and .Values.tls.clientCertificates .Values.tls.certificate.issuerRef.name }}{{ include "slidegate.fullname" . }}-client.{{ .Release.Namespace }}
{{- end }}
{{- end }}

{{/* The Secret with which helm test calls the service. */}}
{{- define "slidegate.testSecret" -}}
{{- if .Values.helmTest.clientSecret }}{{ .Values.helmTest.clientSecret }}
{{- else if and .Values.tls.clientCertificates .Values.tls.certificate.issuerRef.name }}{{ include "slidegate.fullname" . }}-client-tls
{{- else }}{{ include "slidegate.tlsSecret" . }}
{{- end }}
{{- end }}

{{/* "yes" if the probes use a unix socket, because there is no HTTP port. */}}
{{- define "slidegate.socket" -}}
{{- if and .Values.tls.enabled .Values.tls.clientCertificates }}yes{{ end }}
{{- end }}

{{/* Not empty if the rules come from files. */}}
{{- define "slidegate.ruleFiles" -}}
{{- if ne (dig "rules" "source" "files" .Values.settings) "xds" }}yes{{ end }}
{{- end }}

{{/* Not empty if the tiers come from a file, or the names of tiers do. */}}
{{- define "slidegate.tierFile" -}}
{{- $source := dig "tiers" "source" "file" .Values.settings }}
{{- if or (eq $source "file") .Values.tiers.file .Values.tiers.existingConfigMap }}yes{{ end }}
{{- end }}

{{- define "slidegate.helmTest" -}}
{{- if and .Values.helmTest.enabled (include "slidegate.ruleFiles" .) (not .Values.rules.shadowMode) }}yes{{ end }}
{{- end }}

{{- define "slidegate.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
readOnlyRootFilesystem: true
{{- end }}

{{/* Call it with a user's number. */}}
{{- define "slidegate.podSecurityContext" -}}
runAsUser: {{ . }}
runAsGroup: {{ . }}
runAsNonRoot: true
# The group of mounted files, so that the process can read a Secret with mode 0440.
fsGroup: {{ . }}
seccompProfile: {type: RuntimeDefault}
{{- end }}
