#!/usr/bin/env bash
# The first process of a Kubernetes node in namespaces of its own: it starts the node, runs a command, and exits with its status.
# The kernel then ends everything else in the namespaces. main.go calls it:
#   node.sh COMMAND...
#
#   NODE_DIR       an empty folder for everything that the node writes
#   NODE_PROGRAMS  the folder of kube-apiserver and the others, of coredns, and of debian/ with etcd, containerd and the CNI plugins
#   NODE_IMAGES    a folder of image archives to import
set -euo pipefail

node=10.10.0.2 # the address of the node, of its API and of its DNS server
dns=10.96.0.10
debian=$NODE_PROGRAMS/debian/usr
# Programs of Debian that are installed are older than those of NODE_PROGRAMS, or have another version.
export PATH=$NODE_PROGRAMS:$debian/sbin:$debian/bin:$PATH KUBECONFIG=$NODE_DIR/admin.kubeconfig
cd "$NODE_DIR"
mkdir -p log pki etcd containerd kubelet cni volumeplugins

# fail MESSAGE LOG
fail() {
	printf 'node: %s; the end of its log:\n' "$1" >&2
	tail -n 20 "log/$2.log" >&2
	exit 1
}
# wait_for SECONDS LOG COMMAND... waits until the command succeeds.
wait_for() {
	local seconds=$1 log=$2
	shift 2
	for ((i = 0; i < seconds * 10; i++)); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
	fail "$log: not ready within $seconds s" "$log"
}
# start NAME COMMAND... starts a program in the background.
start() {
	local name=$1
	shift
	"$@" >"log/$name.log" 2>&1 &
}

# ---- The file system: what the node writes outside of NODE_DIR stays in it too.

mount --make-rprivate /
for dir in etc var; do
	mkdir -p "overlay/$dir" "overlay/$dir.work"
	mount -t overlay overlay -o "lowerdir=/$dir,upperdir=$NODE_DIR/overlay/$dir,workdir=$NODE_DIR/overlay/$dir.work" "/$dir"
done
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mkdir /run/netns
hostname node
printf '127.0.0.1 localhost\n%s node\n' $node >/etc/hosts
# The command finds services by name. Pods ask the same server at its cluster address.
rm -f /etc/resolv.conf
printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' $node >/etc/resolv.conf
printf 'nameserver 127.0.0.1\n' >resolv.empty

# ---- The network: one interface that leads nowhere, because the API refuses a loopback address.

ip link set lo up
ip link add eth0 type veth peer name eth0peer
ip address add $node/24 dev eth0
ip link set eth0 up
ip link set eth0peer up
ip route add default via $node
sysctl -qw net.ipv4.ip_forward=1

# ---- Configuration

openssl genrsa -out pki/accounts.key 2048 2>/dev/null
openssl rsa -in pki/accounts.key -pubout -out pki/accounts.pub 2>/dev/null
printf 'admin,admin,admin,system:masters\nnode,system:node:node,node,system:nodes\n' >pki/tokens.csv
for user in admin node; do
	cat >$user.kubeconfig <<-END
		apiVersion: v1
		kind: Config
		current-context: node
		clusters: [{name: node, cluster: {server: "https://$node:6443", insecure-skip-tls-verify: true}}]
		users: [{name: $user, user: {token: $user}}]
		contexts: [{name: node, context: {cluster: node, user: $user}}]
	END
done
cat >containerd.toml <<END
version = 2
root = "$NODE_DIR/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$NODE_DIR/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true # root may lack CAP_SYS_RESOURCE
  sandbox_image = "registry.k8s.io/pause:3.6"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$debian/lib/cni"
    conf_dir = "$NODE_DIR/cni"
END
cat >cni/10-pods.conflist <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
cat >kubelet.yaml <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
cgroupRoot: $NODE_CGROUP
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: $node
clusterDNS: [$dns]
clusterDomain: cluster.local
resolvConf: $NODE_DIR/resolv.empty
volumePluginDir: $NODE_DIR/volumeplugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
# A ConfigMap's change reaches a pod within a minute by default; this stays at the default.
syncFrequency: 1m
END
cat >Corefile <<END
cluster.local:53 {
  bind $node
  errors
  kubernetes cluster.local {
    kubeconfig $KUBECONFIG node
  }
  cache 5
}
.:53 {
  bind $node
  template ANY ANY {
    rcode NXDOMAIN
  }
}
END

# ---- The node

start etcd etcd --data-dir etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 \
	--listen-peer-urls http://127.0.0.1:2380 --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380
start apiserver kube-apiserver --etcd-servers=http://127.0.0.1:2379 --cert-dir=pki/apiserver --secure-port=6443 \
	--bind-address=$node --advertise-address=$node --service-cluster-ip-range=10.96.0.0/16 \
	--service-account-issuer=https://kubernetes.default.svc --service-account-key-file=pki/accounts.pub --service-account-signing-key-file=pki/accounts.key \
	--token-auth-file=pki/tokens.csv --authorization-mode=Node,RBAC --allow-privileged=true --kubelet-preferred-address-types=InternalIP
start containerd containerd --config containerd.toml
wait_for 60 apiserver kubectl get --raw /readyz
start controllers kube-controller-manager --kubeconfig="$KUBECONFIG" --bind-address=127.0.0.1 --cert-dir=pki/controllers --leader-elect=false \
	--service-account-private-key-file=pki/accounts.key --root-ca-file=pki/apiserver/apiserver.crt \
	--cluster-cidr=10.244.0.0/16 --service-cluster-ip-range=10.96.0.0/16
start scheduler kube-scheduler --kubeconfig="$KUBECONFIG" --bind-address=127.0.0.1 --cert-dir=pki/scheduler --leader-elect=false
start proxy kube-proxy --kubeconfig="$KUBECONFIG" --hostname-override=node --proxy-mode=iptables --cluster-cidr=10.244.0.0/16 \
	--conntrack-max-per-core=0 --bind-address=127.0.0.1
start dns coredns -conf Corefile
wait_for 60 containerd ctr version
: >log/images.log
for archive in "$NODE_IMAGES"/*.tar; do
	ctr -n k8s.io images import "$archive" >>log/images.log 2>&1 || fail "$archive: cannot be imported" images
done
start kubelet kubelet --config=kubelet.yaml --kubeconfig=node.kubeconfig --root-dir="$NODE_DIR/kubelet" \
	--hostname-override=node --node-ip=$node --cert-dir=pki/kubelet
kubectl apply -f - >log/services.log 2>&1 <<END || fail "the service of the DNS server" services
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: $dns, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
endpoints: [{addresses: [$node], conditions: {ready: true}}]
END
wait_for 120 kubelet kubectl wait --for=condition=Ready node/node --timeout=1s
# A pod needs the account of its namespace, which a controller makes.
wait_for 60 controllers kubectl get serviceaccount default

cd "$NODE_WD"
status=0
"$@" || status=$?
exit $status
