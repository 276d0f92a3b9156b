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
		{"dropIn: {env: {LOG_LEVEL: INFO}}", "dropIn.enabled is false"},
		{"settings: {store: {type: redis}}", "settings.store.type is decided by another value of the chart: use redis"},
		{"settings: {grpc: {tls: {cert_file: /c}}}", "settings.grpc.tls is decided by another value of the chart: use tls"},
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
