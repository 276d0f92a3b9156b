//go:build linux

// Command node runs a command on a real Kubernetes node that it starts for it, and takes the node
// down afterwards:
//
//	go run ./test/kubernetes/node -programs .tools/kubernetes-1.36.3 kubectl get nodes
//
// The node is etcd, the API server, the controllers, the scheduler, kube-proxy, CoreDNS, containerd
// and the kubelet. They run in namespaces of their own (network, mounts, processes), so nothing
// listens outside, and the firewall and the file system of the host stay as they are. The command
// runs in the same namespaces: it reaches pods and services by address and by name, and KUBECONFIG
// is set. Several nodes can run at the same time.
//
// There is no image registry. The images are made from the programs of this machine, with the names
// of the originals: images.go lists them. They contain less than the originals and never more. They
// cannot prove that a tag exists, nor what the entrypoint of an original does. Pods must say
// imagePullPolicy: IfNotPresent or Never.
//
// It needs root and Linux. Not there: NetworkPolicy is not enforced, and there is no metrics API, so
// a HorizontalPodAutoscaler does not scale.
package main
