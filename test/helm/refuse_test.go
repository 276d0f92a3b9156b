package helm

import (
	"strings"
	"testing"
)

// TestRenderRefuses gives values that contradict each other, or that do not exist. helm template must
// fail with a sentence that says what to do.
func TestRenderRefuses(t *testing.T) {
	for _, tt := range []struct{ values, want string }{
		{"replicas: 2", "replicas is 2, but without Redis each pod counts for itself"},
		{"autoscaling: {enabled: true}", "autoscaling.enabled needs Redis"},
		{"{autoscaling: {enabled: true}, replicas: 3, redis: {enabled: true}}", "remove replicas, and set autoscaling.minReplicas"},
		{"{autoscaling: {enabled: true, minReplicas: 9, maxReplicas: 3}, redis: {enabled: true}}", "autoscaling.minReplicas is above autoscaling.maxReplicas"},
		{"redis: {enabled: true, url: 'redis://redis:6379'}", "redis.enabled makes a Redis, and redis.url names another one"},
		{"redis: {enabled: true, existingSecret: redis}", "redis.enabled makes a Redis, and redis.existingSecret names another one"},
		{"redis: {enabled: true, tls: {existingSecret: ca}}", "redis.enabled makes a Redis without TLS"},
		{"redis: {url: 'redis://user:password@redis:6379'}", "put it into a Secret"},
		{"redis: {existingSecret: redis, secretKeys: {url: ''}}", "redis.existingSecret has no URL"},
		{"redis: {url: 'redis://redis:6379', tls: {existingSecret: ca}}", "write rediss://"},
		{"redis: {url: 'rediss://redis:6379', tls: {clientCertificate: true}}", "redis.tls.clientCertificate needs redis.tls.existingSecret"},
		{"redis: {url: 'http://redis:6379'}", "'/redis/url'"},
		{"tls: {enabled: true}", "tls.enabled needs a certificate"},
		{"tls: {enabled: true, existingSecret: tls, certificate: {issuerRef: {name: ca}}}", "both name a certificate"},
		{"tls: {existingSecret: tls}", "set tls.enabled to true"},
		{"tls: {certificate: {issuerRef: {name: ca}}}", "set tls.enabled to true"},
		{"tls: {enabled: true, existingSecret: tls, clientCertificates: false, clientSAN: envoy}", "tls.clientCertificates is false"},
		{"rules: {files: {a.yaml: 'domain: a'}, existingConfigMap: rules}", "both give the rules"},
		{"rules: {files: {a.json: '{}'}}", "'/rules/files'"},
		{"tiers: {file: 'tiers: [a]', existingConfigMap: tiers}", "both give the tiers"},
		{"{rules: {existingConfigMap: rules}, settings: {rules: {source: xds}}}", "settings.rules.source is xds"},
		{"networkPolicy: {enabled: true}", "name the pods that may call"},
		{"{networkPolicy: {enabled: true, clients: [{podSelector: {}}]}, monitoring: {enabled: true}}", "set networkPolicy.monitoringNamespace"},
		{"{admin: {peers: {existingSecret: peers}}, redis: {enabled: true}}", "set admin.tokens.existingSecret to a Secret with tokens"},
		{"admin: {peers: {existingSecret: peers}, tokens: {existingSecret: tokens}}", "admin.peers.existingSecret needs Redis"},
		{"{admin: {peers: {existingSecret: peers}, tokens: {existingSecret: tokens}}, redis: {enabled: true}, dropIn: {enabled: true}}", "which dropIn.enabled replaces"},
		{"{settings: {admin: {peers_key: k}}}", "settings.admin.peers_key is decided by another value of the chart: use admin.peers"},
		{"dropIn: {env: {LOG_LEVEL: INFO}}", "dropIn.enabled is false"},
		{"settings: {store: {type: redis}}", "settings.store.type is decided by another value of the chart: use redis"},
		{"settings: {grpc: {tls: {cert_file: /c}}}", "settings.grpc.tls is decided by another value of the chart: use tls"},
		{"settings: {grpc: null}", "'/settings/grpc': got null"},
		{"settings: {http: null}", "'/settings/http': got null"},
		{"{redis: {enabled: true}, settings: {store: null}}", "'/settings/store': got null"},
		{"settings: {store: {redis: null}}", "settings.store.redis has no settings in it"},
		{"settings: {rules: [a]}", "'/settings/rules': got array"},
		{"settings: {tiers: {source: http, http: {token: t}}}", "settings.tiers.http.token would be in a ConfigMap"},
		{"settings: {tiers: {source: redis, redis: {url: 'redis://u:p@redis:6379'}}}", "settings.tiers.redis.url has a user or a password"},
		{"dropIn: {enabled: true, env: {REDIS_AUTH: p}}", "dropIn.env.REDIS_AUTH is a password"},
		{"dropIn: {enabled: true, env: {REDIS_URL: 'redis://u:p@redis:6379'}}", "dropIn.env.REDIS_URL has a user or a password"},
		{"dropIn: {enabled: true, env: {SLIDEGATE_HTTP_ADDRESS: ':8080'}}", "'SLIDEGATE_HTTP_ADDRESS'"},
		{"fullnameOverride: 'on'", "means something else than a name in YAML"},
		{"{redis: null}", "'redis'"},
		{"{resources: null}", "'resources'"},
		{"{settings: null}", "'settings'"},
		{"{tls: {certificate: null}}", "'certificate'"},
		{"{redis: {tls: null}}", "'tls'"},
		{"drain: {delaySeconds: 99999999999}", "'/drain/delaySeconds'"},
		{"podLabels: {app.kubernetes.io/component: other}", "invalid propertyName"},
		{"commonLabels: {app.kubernetes.io/name: other}", "invalid propertyName"},
		{"priorityClassName: \"a\\n      hostNetwork: true\"", "'/priorityClassName'"},
		{"redis: {existingSecret: s, secretKeys: {url: 'u}}'}}", "'/redis/secretKeys/url'"},
		{"replcas: 2", "'replcas' not allowed"},
		{"redis: {pasword: x}", "'pasword' not allowed"},
		{"monitoring: {kind: Probe}", "'/monitoring/kind'"},
		{"image: {digest: latest}", "'/image/digest'"},
	} {
		refused(t, chart, tt.values, tt.want)
	}
}

// TestRenderSidecarRefuses does the same with the values of the library.
func TestRenderSidecarRefuses(t *testing.T) {
	dir := withLibrary(t)
	for _, tt := range []struct{ values, want string }{
		{"{rules: {files: null}}", "there are no rules"},
		{"{rules: {existingConfigMap: rules}}", "both give the rules"},
		{"{tiers: {file: 'tiers: [a]', existingConfigMap: tiers}}", "both give the tiers"},
		{"{redis: {url: 'redis://user:password@redis:6379'}}", "put it into a Secret"},
		{"{application: {port: 10000}}", "both have port 10000"},
		{"{application: {port: 6070}}", "port 6070 is taken"},
		{"{envoy: {port: 9901}}", "port 9901 is taken"},
		{"{envoy: {config: 'node: {}'}, application: {port: 9000}}", "application.port has no effect"},
		{"{env: {LOG_LEVEL: debug}}", "'LOG_LEVEL' not allowed"},
		{"{env: {SLIDEGATE_STORE_REDIS_PASSWORD: p}}", "env.SLIDEGATE_STORE_REDIS_PASSWORD is a secret"},
		{"{env: {SLIDEGATE_TIERS_POSTGRES_URL: 'postgres://u:p@db/x'}}", "env.SLIDEGATE_TIERS_POSTGRES_URL has a password"},
		{"{env: {SLIDEGATE_HTTP_ADDRESS: ':8080'}}", "env.SLIDEGATE_HTTP_ADDRESS is decided by another value"},
		{"{resources: null}", "'resources'"},
		{"{envoy: null}", "'envoy'"},
		{"{preStopSeconds: 1000000}", "'/preStopSeconds'"},
		{"{envoy: {prot: 1}}", "'prot' not allowed"},
	} {
		refused(t, dir, "slidegate-sidecar: "+tt.values, tt.want)
	}
}

func refused(t *testing.T, chart, values, want string) {
	t.Helper()
	if _, err := render(t, chart, values); err == nil {
		t.Errorf("%s: rendered, want %q", values, want)
	} else if !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %q, want %q", values, err, want)
	}
}
