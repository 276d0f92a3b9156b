package servers

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slidegate/slidegate/test/process"
)

const (
	clusterMasters = 3
	clusterNodes   = 2 * clusterMasters
	clusterSlots   = 16384

	// clusterNodeTimeout is in milliseconds. A dead master is replaced after two
	// or three times as long. A node that a busy machine stops for longer than this
	// counts as dead.
	clusterNodeTimeout = "2000"

	// Redis gives up a manual failover after five seconds; it is asked again then.
	failoverRetry = 6 * time.Second
)

// A Cluster is a Redis Cluster of three masters with a replica each. Its nodes
// can be stopped, started and frozen one by one; a node that starts again is
// empty and has its old identity. Every method asks the running nodes, so its answer
// is true after a failover too.
//
// The methods fail the test on an error and must be called from the test's
// goroutine. Those that change the cluster wait until every running node knows of
// the change.
type Cluster struct {
	t     process.TB
	nodes []*RedisServer
	ids   map[string]*RedisServer // by node id
}

// StartCluster starts a cluster. args are further options of every node, as those
// of StartRedis. It takes two seconds, because a master refuses to serve for that
// long after its start.
func StartCluster(t process.TB, args ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t, ids: make(map[string]*RedisServer)}
	for range clusterNodes {
		s := newRedis(t, "", append([]string{
			"--port", portArgument,
			"--cluster-enabled", "yes",
			"--cluster-node-timeout", clusterNodeTimeout,
			// The other slots are served while a master is dead.
			"--cluster-require-full-coverage", "no",
			// A replica can be elected however long its master has been silent, and it
			// stays with its master.
			"--cluster-replica-validity-factor", "0",
			"--cluster-allow-replica-migration", "no",
			"--masteruser", adminUser,
			"--masterauth", adminPassword(),
			"--repl-diskless-sync", "yes",
			"--repl-diskless-sync-delay", "0",
		}, args...)...)
		s.bus = true
		c.nodes = append(c.nodes, s)
	}
	if err := c.launch(); err != nil {
		t.Fatalf("servers: starting a cluster: %v", err)
	}
	c.WaitOK()
	return c
}

// launch starts the nodes, introduces them to each other, and assigns slots and
// replicas.
func (c *Cluster) launch() error {
	if err := launchAll(c.nodes); err != nil {
		return err
	}

	ids := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		id, err := s.Do("CLUSTER", "MYID")
		if err != nil {
			return err
		}
		ids[i] = id
		c.ids[id] = s
		// Different epochs from the start: nodes with equal epochs change them while a
		// test is running.
		if _, err := s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1)); err != nil {
			return err
		}
		if i < clusterMasters {
			first, after := i*clusterSlots/clusterMasters, (i+1)*clusterSlots/clusterMasters
			add := []string{"CLUSTER", "ADDSLOTS"} // ADDSLOTSRANGE is Redis 7
			for slot := first; slot < after; slot++ {
				add = append(add, strconv.Itoa(slot))
			}
			if _, err := s.Do(add...); err != nil {
				return err
			}
		}
		// Each node meets all others, because gossip would take longer.
		for _, other := range c.nodes[:i] {
			host, port, _ := net.SplitHostPort(other.Addr())
			if _, err := s.Do("CLUSTER", "MEET", host, port); err != nil {
				return err
			}
		}
	}
	for i, s := range c.nodes[clusterMasters:] {
		// It fails until the node knows that its master is a master.
		err := eventually(c.t, func() error {
			_, err := s.Do("CLUSTER", "REPLICATE", ids[i])
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Nodes returns all nodes, always in the same order.
func (c *Cluster) Nodes() []*RedisServer { return slices.Clone(c.nodes) }

// Addrs returns host:port of all nodes, in the order of Nodes.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		addrs[i] = s.Addr()
	}
	return addrs
}

// Masters returns the nodes that have slots, running or not, in the order of Nodes.
func (c *Cluster) Masters() []*RedisServer {
	c.t.Helper()
	v := c.view()
	return c.those(func(n clusterNode) bool { return len(n.slots) > 0 }, v)
}

// Replicas returns the nodes that replicate another one, as Masters does.
func (c *Cluster) Replicas() []*RedisServer {
	c.t.Helper()
	v := c.view()
	return c.those(func(n clusterNode) bool { return n.master != "" }, v)
}

// ReplicaOf returns a replica of a master; one that runs, if there is one.
func (c *Cluster) ReplicaOf(master *RedisServer) *RedisServer {
	c.t.Helper()
	v := c.view()
	found := c.those(func(n clusterNode) bool { return n.master != "" && c.ids[n.master] == master }, v)
	if len(found) == 0 {
		c.t.Fatalf("servers: %s has no replica in the cluster:\n%s", master.Addr(), v)
		return nil
	}
	if i := slices.IndexFunc(found, (*RedisServer).answers); i >= 0 {
		return found[i]
	}
	return found[0]
}

// MasterOf returns the node that has the slot of a key.
func (c *Cluster) MasterOf(key string) *RedisServer {
	c.t.Helper()
	return c.MasterOfSlot(c.Slot(key))
}

// MasterOfSlot returns the node that has a slot.
func (c *Cluster) MasterOfSlot(slot int) *RedisServer {
	c.t.Helper()
	found, v := c.mastersOf(slot)
	if len(found) != 1 {
		c.t.Fatalf("servers: slot %d has %d masters, want 1:\n%s", slot, len(found), v)
		return nil
	}
	return found[0]
}

// mastersOf returns the nodes that have a slot, and the view of the cluster that says
// so. There may be none for a moment while a master fails.
func (c *Cluster) mastersOf(slot int) ([]*RedisServer, *clusterView) {
	c.t.Helper()
	v := c.view()
	return c.those(func(n clusterNode) bool { return n.has(slot) }, v), v
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	for _, s := range c.running() {
		reply, err := s.Do("CLUSTER", "KEYSLOT", key)
		if err != nil {
			continue
		}
		if slot, err := strconv.Atoi(reply); err == nil {
			return slot
		}
	}
	c.t.Fatalf("servers: no node of the cluster answers")
	return 0
}

// The modes of Failover.
const (
	// FailoverAgreed makes the master wait until the replica has everything.
	FailoverAgreed = ""
	// FailoverForce does without the master, which may be dead.
	FailoverForce = "FORCE"
	// FailoverTakeover does without the other masters too.
	FailoverTakeover = "TAKEOVER"
)

// Failover makes a replica the master of its master's slots.
func (c *Cluster) Failover(replica *RedisServer, mode string) {
	c.t.Helper()
	command := []string{"CLUSTER", "FAILOVER"}
	if mode != FailoverAgreed {
		command = append(command, mode)
	}
	var asked time.Time
	err := eventually(c.t, func() error {
		// A replica that is a master already refuses to be asked again, so the other
		// nodes are looked at first.
		last := c.agree(func(v *clusterView) error {
			if n := v.of(c, replica); n == nil || len(n.slots) == 0 {
				return errors.New(replica.Addr() + " has not become a master")
			}
			return nil
		})
		if last == nil || time.Since(asked) <= failoverRetry {
			return last
		}
		asked = time.Now()
		_, err := replica.Do(command...)
		return errors.Join(err, last)
	})
	if err != nil {
		c.t.Fatalf("servers: failover to %s: %v", replica.Addr(), err)
	}
}

// BeginMigration prepares a slot for moving its keys. From then on the old master
// answers ASK to a client that asks for a key that the master does not have.
func (c *Cluster) BeginMigration(slot int, from, to *RedisServer) {
	c.t.Helper()
	// In this order: no client is sent to a node that does not expect it.
	c.setSlot(to, slot, "IMPORTING", c.id(from))
	c.setSlot(from, slot, "MIGRATING", c.id(to))
}

// MigrateKeys moves up to n keys of a slot whose migration has begun and returns
// how many there were.
func (c *Cluster) MigrateKeys(slot int, from, to *RedisServer, n int) int {
	c.t.Helper()
	reply, err := from.do(process.Timeout, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(slot), strconv.Itoa(n))
	if err != nil {
		c.t.Fatalf("servers: keys in slot %d of %s: %v", slot, from.Addr(), err)
		return 0
	}
	keys, _ := reply.([]any)
	if len(keys) == 0 {
		return 0
	}
	host, port, _ := net.SplitHostPort(to.Addr())
	command := []string{
		"MIGRATE", host, port, "", "0", strconv.FormatInt(process.Timeout.Milliseconds(), 10),
		"AUTH2", adminUser, adminPassword(), "KEYS",
	}
	for _, key := range keys {
		command = append(command, replyText(key))
	}
	// A key that has expired in between is no error: the answer is NOKEY then.
	if _, err := from.do(2*process.Timeout, command...); err != nil {
		c.t.Fatalf("servers: moving keys of slot %d from %s to %s: %v", slot, from.Addr(), to.Addr(), err)
	}
	return len(keys)
}

// FinishMigration moves the keys that are left and gives the slot to its new
// master.
func (c *Cluster) FinishMigration(slot int, from, to *RedisServer) {
	c.t.Helper()
	for c.MigrateKeys(slot, from, to, 100) > 0 {
	}
	// The new master first, so that a master has the slot at any time, then the nodes
	// that would learn of it by gossip.
	c.setSlot(to, slot, "NODE", c.id(to))
	c.setSlot(from, slot, "NODE", c.id(to))
	for _, s := range c.Masters() {
		if s != to && s != from && s.answers() {
			c.setSlot(s, slot, "NODE", c.id(to))
		}
	}
	err := eventually(c.t, func() error {
		return c.agree(func(v *clusterView) error {
			if n := v.of(c, to); n == nil || !n.has(slot) {
				return fmt.Errorf("slot %d is not with %s", slot, to.Addr())
			}
			return nil
		})
	})
	if err != nil {
		c.t.Fatalf("servers: migrating slot %d: %v", slot, err)
	}
}

func (c *Cluster) setSlot(s *RedisServer, slot int, state, node string) {
	c.t.Helper()
	if _, err := s.Do("CLUSTER", "SETSLOT", strconv.Itoa(slot), state, node); err != nil {
		c.t.Fatalf("servers: slot %d %s: %v", slot, state, err)
	}
}

// WaitOK waits until all running nodes serve, reach each other, and agree on the master of
// each slot. Every running replica is then connected to its master.
func (c *Cluster) WaitOK() {
	c.t.Helper()
	err := eventually(c.t, func() error {
		var owners []string
		return c.agree(func(v *clusterView) error {
			if state := field(v.info, "cluster_state"); state != "ok" {
				return errors.New("its cluster_state is " + state)
			}
			if len(v.nodes) != len(c.nodes) {
				return fmt.Errorf("it knows %d nodes, want %d", len(v.nodes), len(c.nodes))
			}
			for _, n := range v.nodes {
				if s := c.ids[n.id]; s != nil && s.answers() && (!n.connected || n.failing) {
					return errors.New("it does not reach " + s.Addr())
				}
			}
			if owners == nil {
				owners = v.owners()
			}
			if !slices.Equal(owners, v.owners()) {
				return errors.New("it names other masters for some slots")
			}
			if v.self == nil || v.self.master == "" || !c.ids[v.self.master].answers() {
				return nil
			}
			replication, err := v.asked.do(stateTimeout, "INFO", "replication")
			if err != nil {
				return err
			}
			if field(replyText(replication), "master_link_status") != "up" {
				return errors.New("it is not connected to its master")
			}
			return nil
		})
	})
	if err != nil {
		c.t.Fatalf("servers: waiting for the cluster: %v", err)
	}
}

func (c *Cluster) running() []*RedisServer {
	return slices.DeleteFunc(c.Nodes(), func(s *RedisServer) bool { return !s.answers() })
}

// agree returns nil if check accepts the view of every running node.
func (c *Cluster) agree(check func(*clusterView) error) error {
	running := c.running()
	if len(running) == 0 {
		return errors.New("no node of the cluster runs")
	}
	for _, s := range running {
		v, err := askView(s)
		if err != nil {
			return err
		}
		if err := check(v); err != nil {
			return fmt.Errorf("%s: %w:\n%s", s.Addr(), err, v)
		}
	}
	return nil
}

// view returns the view of the node that has seen the latest change.
func (c *Cluster) view() *clusterView {
	c.t.Helper()
	var latest *clusterView
	var errs []error
	for _, s := range c.running() {
		v, err := askView(s)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if latest == nil || v.epoch > latest.epoch {
			latest = v
		}
	}
	if latest == nil {
		c.t.Fatalf("servers: no node of the cluster answers: %v", errors.Join(errs...))
		return &clusterView{}
	}
	return latest
}

// those returns the chosen nodes of a view, in the order of Nodes.
func (c *Cluster) those(chosen func(clusterNode) bool, v *clusterView) []*RedisServer {
	var found []*RedisServer
	for _, n := range v.nodes {
		if s := c.ids[n.id]; s != nil && chosen(n) {
			found = append(found, s)
		}
	}
	slices.SortFunc(found, func(a, b *RedisServer) int {
		return cmp.Compare(slices.Index(c.nodes, a), slices.Index(c.nodes, b))
	})
	return found
}

// id returns the id of a node.
func (c *Cluster) id(s *RedisServer) string {
	for id, known := range c.ids {
		if known == s {
			return id
		}
	}
	return ""
}

// clusterView is the state of the cluster as one node reports it.
type clusterView struct {
	asked *RedisServer
	info  string // of CLUSTER INFO
	text  string // of CLUSTER NODES
	epoch int
	nodes []clusterNode
	self  *clusterNode
}

// clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	id        string
	master    string // empty if it is one
	connected bool
	failing   bool
	slots     [][2]int // first and last
}

func askView(s *RedisServer) (*clusterView, error) {
	info, err := s.do(stateTimeout, "CLUSTER", "INFO")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Addr(), err)
	}
	nodes, err := s.do(stateTimeout, "CLUSTER", "NODES")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Addr(), err)
	}
	v := &clusterView{asked: s, info: replyText(info), text: replyText(nodes)}
	if v.epoch, err = strconv.Atoi(field(v.info, "cluster_current_epoch")); err != nil {
		return nil, fmt.Errorf("%s: its epoch: %w", s.Addr(), err)
	}
	for line := range strings.Lines(v.text) {
		n, self, err := parseNode(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Addr(), err)
		}
		v.nodes = append(v.nodes, n)
		if self {
			v.self = &n
		}
	}
	return v, nil
}

// parseNode reads id, address, flags, master, two times, epoch, state of the
// link, and slots.
func parseNode(line string) (n clusterNode, self bool, err error) {
	f := strings.Fields(line)
	if len(f) < 8 {
		return n, false, fmt.Errorf("a node with %d fields, want 8 or more: %q", len(f), line)
	}
	flags := strings.Split(f[2], ",")
	n = clusterNode{
		id:        f[0],
		connected: f[7] == "connected",
		failing: slices.ContainsFunc(flags, func(f string) bool {
			return f == "fail" || f == "fail?" || f == "handshake" || f == "noaddr"
		}),
	}
	if f[3] != "-" {
		n.master = f[3]
	}
	for _, r := range f[8:] {
		if strings.HasPrefix(r, "[") {
			continue // a migration
		}
		first, last, ranged := strings.Cut(r, "-")
		if !ranged {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err := errors.Join(err1, err2); err != nil {
			return n, false, fmt.Errorf("slots %q: %w", r, err)
		}
		n.slots = append(n.slots, [2]int{from, to})
	}
	return n, slices.Contains(flags, "myself"), nil
}

func (n *clusterNode) has(slot int) bool {
	return slices.ContainsFunc(n.slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] })
}

// of returns a node in the view, or nil.
func (v *clusterView) of(c *Cluster, s *RedisServer) *clusterNode {
	i := slices.IndexFunc(v.nodes, func(n clusterNode) bool { return c.ids[n.id] == s })
	if i < 0 {
		return nil
	}
	return &v.nodes[i]
}

// owners returns a line for each node with its master and its slots, in the order of
// ids.
func (v *clusterView) owners() []string {
	lines := make([]string, len(v.nodes))
	for i, n := range v.nodes {
		lines[i] = fmt.Sprint(n.id, n.master, n.slots)
	}
	slices.Sort(lines)
	return lines
}

func (v *clusterView) String() string { return v.text }
