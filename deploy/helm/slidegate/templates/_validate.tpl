{{/* Fails with a sentence if values contradict each other. values.schema.json checks each value by itself. */}}
{{- define "slidegate.validate" -}}
{{- $v := .Values -}}
{{- $memory := eq (include "slidegate.store" .) "memory" -}}
{{- include "slidegate.validateScale" . -}}
{{- include "slidegate.validateRedis" . -}}
{{- include "slidegate.validateSettings" . -}}
{{- include "slidegate.validateSecrets" . -}}
{{- include "slidegate.validateName" . -}}

{{- if and $v.tls.enabled (not $v.tls.existingSecret) (not $v.tls.certificate.issuerRef.name) }}
{{- fail "tls.enabled needs a certificate: set tls.existingSecret to a Secret with tls.crt, tls.key and ca.crt, or tls.certificate.issuerRef.name to an issuer of cert-manager" }}
{{- end }}
{{- if and $v.tls.existingSecret $v.tls.certificate.issuerRef.name }}
{{- fail "tls.existingSecret and tls.certificate.issuerRef.name both name a certificate: set only one of them" }}
{{- end }}
{{- if and (not $v.tls.enabled) (or $v.tls.existingSecret $v.tls.certificate.issuerRef.name) }}
{{- fail "a certificate is named under tls, but tls.enabled is false, so the gRPC port would be plain text: set tls.enabled to true, or remove the certificate" }}
{{- end }}
{{- if and $v.tls.clientSAN (not $v.tls.clientCertificates) }}
{{- fail "tls.clientSAN is the name in a client's certificate, but tls.clientCertificates is false: set it to true, or remove the name" }}
{{- end }}

{{- if and $v.rules.files $v.rules.existingConfigMap }}
{{- fail "rules.files and rules.existingConfigMap both give the rules: set only one of them" }}
{{- end }}
{{- if and $v.tiers.file $v.tiers.existingConfigMap }}
{{- fail "tiers.file and tiers.existingConfigMap both give the tiers: set only one of them" }}
{{- end }}
{{- if and (not (include "slidegate.ruleFiles" .)) (or $v.rules.files $v.rules.existingConfigMap) }}
{{- fail "settings.rules.source is xds, so the rules come from an xDS server: remove rules.files and rules.existingConfigMap" }}
{{- end }}

{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.clients) }}
{{- fail "networkPolicy.enabled without networkPolicy.clients would keep every Envoy out: name the pods that may call, for example [{podSelector: {matchLabels: {app: envoy}}}]" }}
{{- end }}
{{- if and $v.networkPolicy.enabled $v.monitoring.enabled (not $v.networkPolicy.monitoringNamespace) }}
{{- fail "networkPolicy and monitoring are both enabled, but Prometheus could not scrape: set networkPolicy.monitoringNamespace to the namespace of Prometheus" }}
{{- end }}
{{- if $v.admin.peers.existingSecret }}
{{- if $memory }}
{{- fail "admin.peers.existingSecret needs Redis, in which pods find each other: set redis.url, redis.existingSecret or redis.enabled" }}
{{- end }}
{{- if $v.dropIn.enabled }}
{{- fail "admin.peers.existingSecret is for the console, which dropIn.enabled replaces by the pages of envoyproxy/ratelimit: remove one of them" }}
{{- end }}
{{- if not $v.admin.tokens.existingSecret }}
{{- fail "with admin.peers.existingSecret other pods reach the admin port, which shows customers and can reset their limits: set admin.tokens.existingSecret to a Secret with tokens" }}
{{- end }}
{{- end }}
{{- if and $v.dropIn.env (not $v.dropIn.enabled) }}
{{- fail "dropIn.env has variables of envoyproxy/ratelimit, but dropIn.enabled is false, so nothing reads them: set it to true" }}
{{- end }}
{{- end }}

{{- define "slidegate.validateScale" -}}
{{- $v := .Values -}}
{{- $memory := eq (include "slidegate.store" .) "memory" -}}
{{- if and $memory (gt (include "slidegate.replicas" . | int) 1) }}
{{- fail (printf "replicas is %d, but without Redis each pod counts for itself, so clients would get %d times their limit: set redis.url, redis.existingSecret or redis.enabled, or set replicas to 1" (int $v.replicas) (int $v.replicas)) }}
{{- end }}
{{- if and $memory $v.autoscaling.enabled }}
{{- fail "autoscaling.enabled needs Redis, because without it each pod counts for itself: set redis.url, redis.existingSecret or redis.enabled" }}
{{- end }}
{{- if and $v.autoscaling.enabled (not (kindIs "invalid" $v.replicas)) }}
{{- fail "autoscaling.enabled and replicas both set the number of pods: remove replicas, and set autoscaling.minReplicas" }}
{{- end }}
{{- if and $v.autoscaling.enabled (gt (int $v.autoscaling.minReplicas) (int $v.autoscaling.maxReplicas)) }}
{{- fail "autoscaling.minReplicas is above autoscaling.maxReplicas" }}
{{- end }}
{{- end }}

{{- define "slidegate.validateRedis" -}}
{{- $r := .Values.redis -}}
{{- if and $r.enabled $r.url }}
{{- fail "redis.enabled makes a Redis, and redis.url names another one: set only one of them" }}
{{- end }}
{{- if and $r.enabled $r.existingSecret }}
{{- fail "redis.enabled makes a Redis, and redis.existingSecret names another one: set only one of them" }}
{{- end }}
{{- if and $r.enabled $r.tls.existingSecret }}
{{- fail "redis.enabled makes a Redis without TLS: remove redis.tls.existingSecret" }}
{{- end }}
{{- if contains "@" $r.url }}
{{- fail "redis.url has a user or a password, and every person that can read the release would see it: put it into a Secret and name it in redis.existingSecret" }}
{{- end }}
{{- if and $r.existingSecret (not $r.url) (not $r.secretKeys.url) }}
{{- fail "redis.existingSecret has no URL without redis.secretKeys.url: set it, or set redis.url" }}
{{- end }}
{{- if and $r.tls.existingSecret $r.url (not (hasPrefix "rediss" $r.url)) }}
{{- fail "redis.tls.existingSecret is set, but redis.url is plain text: write rediss:// (rediss-sentinel://, rediss-cluster://)" }}
{{- end }}
{{- if and $r.tls.clientCertificate (not $r.tls.existingSecret) }}
{{- fail "redis.tls.clientCertificate needs redis.tls.existingSecret, a Secret with tls.crt and tls.key" }}
{{- end }}
{{- end }}

{{/* The settings that values of the chart decide. Elsewhere they would not fit volumes, ports and probes. */}}
{{- define "slidegate.validateSettings" -}}
{{- $owned := dict "store.type" "redis" "store.redis.url" "redis.url" "store.redis.password" "redis.existingSecret"
  "store.redis.password_file" "redis.existingSecret" "store.redis.sentinel_password" "redis.existingSecret"
  "store.redis.sentinel_password_file" "redis.existingSecret" "store.redis.tls" "redis.tls"
  "rules.path" "rules.files or rules.existingConfigMap" "rules.shadow_mode" "rules.shadowMode" "tiers.path" "tiers.file or tiers.existingConfigMap"
  "grpc.address" "extraEnv if you must: Service and probes have fixed ports" "http.address" "extraEnv if you must: the probes have fixed ports"
  "admin.address" "kubectl port-forward" "admin.token_file" "admin.tokens" "admin.peers_key_file" "admin.peers" "admin.peers_key" "admin.peers" "metrics.address" "monitoring.enabled" "grpc.tls" "tls" "drain.delay" "drain.delaySeconds" "drain.timeout" "drain.timeoutSeconds"
  "secrets.key" "secrets.existingSecret" "secrets.key_file" "secrets.existingSecret"
  "secrets.previous_key" "secrets.previousKey" "secrets.previous_key_file" "secrets.previousKey" -}}
{{- range $path, $value := $owned }}
{{- $node := $.Values.settings }}
{{- $found := true }}
{{- $above := "settings" }}
{{- range splitList "." $path }}
{{- if and $found (not (kindIs "map" $node)) }}
{{- fail (printf "%s has no settings in it, and would remove those of the chart: remove it, or write settings below it" $above) }}
{{- end }}
{{- $above = printf "%s.%s" $above . }}
{{- if and $found (hasKey $node .) }}{{ $node = index $node . }}{{ else }}{{ $found = false }}{{ end }}
{{- end }}
{{- if $found }}
{{- fail (printf "settings.%s is decided by another value of the chart: use %s" $path $value) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Values are in the release, in ConfigMaps and in the Deployment, where more people can read them than
Secrets. */}}
{{- define "slidegate.validateSecrets" -}}
{{- $tiers := dig "tiers" dict .Values.settings | default dict }}
{{- range $source, $names := dict "redis" (list "password" "sentinel_password") "postgres" (list "password") "http" (list "token") }}
{{- $settings := dig $source dict $tiers | default dict }}
{{- range $names }}
{{- if and (hasKey $settings .) (index $settings .) }}
{{- fail (printf "settings.tiers.%s.%s would be in a ConfigMap: write %s_file, and mount a Secret with extraVolumes" $source . .) }}
{{- end }}
{{- end }}
{{- if regexMatch "://[^/?#]*:[^/?#]*@" (dig "url" "" $settings | toString) }}
{{- fail (printf "settings.tiers.%s.url has a user or a password, which would be in a ConfigMap: write password_file, and mount a Secret with extraVolumes" $source) }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.dropIn.env }}
{{- if and $value (hasSuffix "_AUTH" $name) }}
{{- fail (printf "dropIn.env.%s is a password, which anyone who can read the release would see: put it into a Secret and name it in redis.existingSecret" $name) }}
{{- end }}
{{- if contains "@" (toString $value) }}
{{- fail (printf "dropIn.env.%s has a user or a password, which anyone who can read the release would see: put it into a Secret and name it in redis.existingSecret" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "slidegate.validateName" -}}
{{- $name := include "slidegate.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "the resources would have the name %s, but the name of a Service begins with a letter and has no dot: set fullnameOverride" $name) }}
{{- end }}
{{- if not (kindIs "string" (printf "name: %s" $name | fromYaml).name) }}
{{- fail (printf "the resources would have the name %s, which means something else than a name in YAML: set another fullnameOverride" $name) }}
{{- end }}
{{- end }}
