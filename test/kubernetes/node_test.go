package kubernetes

import (
	"fmt"
	"net/http"
	"testing"
)

const application = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: app}
spec:
  replicas: 2
  selector: {matchLabels: {app: app}}
  template:
    metadata: {labels: {app: app}}
    spec:
      containers:
      - {name: app, image: docker.io/slidegate/upstream:dev, imagePullPolicy: Never, ports: [{containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: app}
spec: {selector: {app: app}, ports: [{port: 80, targetPort: 8080}]}
`

// TestNode checks what the other tests take for granted: pods, services, names and logs.
func TestNode(t *testing.T) {
	n := newNamespace(t)
	n.apply(application)
	n.rollout("deployment/app")
	url := fmt.Sprintf("http://app.%s/", n.name)
	n.eventually(func() error {
		status, _, err := get(t.Context(), url)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("got status %d", status)
		}
		return err
	})
	if pods := n.pods("app=app"); len(pods) != 2 {
		t.Errorf("got the pods %v, want 2", pods)
	}
}
