package servers

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/slidegate/slidegate/test/process"
)

// dnsSize is the largest answer over UDP. A longer one is cut, and the client asks over TCP.
const dnsSize = 1232

// A DNSServer answers over UDP and TCP with the addresses of names. Its methods are safe for
// concurrent use.
type DNSServer struct {
	packet net.PacketConn
	stream net.Listener
	wg     sync.WaitGroup

	mu       sync.Mutex
	names    map[string][]netip.Addr // with a dot at the end
	codes    map[dnsmessage.Type]dnsmessage.RCode
	isSilent bool
	answers  int
	overTCP  int
}

// StartDNS starts a DNS server for the time of the test. It knows no name yet.
func StartDNS(t process.TB) *DNSServer {
	t.Helper()
	packet, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("servers: opening a port for DNS: %v", err)
	}
	stream, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		_ = packet.Close()
		t.Fatalf("servers: opening a port for DNS over TCP: %v", err)
	}
	s := &DNSServer{packet: packet, stream: stream, names: make(map[string][]netip.Addr), codes: make(map[dnsmessage.Type]dnsmessage.RCode)}
	s.wg.Go(s.servePackets)
	s.wg.Go(s.serveStreams)
	t.Cleanup(func() {
		_, _ = packet.Close(), stream.Close()
		s.wg.Wait()
	})
	return s
}

// Resolver returns a resolver that asks this server only.
func (s *DNSServer) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		at := s.packet.LocalAddr()
		if strings.HasPrefix(network, "tcp") {
			at = s.stream.Addr()
		}
		return new(net.Dialer).DialContext(ctx, network, at.String())
	}}
}

// Set gives a name its addresses, in place of others. Without addresses the name does not exist.
func (s *DNSServer) Set(name string, addresses ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[strings.TrimSuffix(name, ".")+"."] = addresses
}

// Refuse answers questions of a type with an error. dnsmessage.RCodeSuccess ends that.
func (s *DNSServer) Refuse(of dnsmessage.Type, code dnsmessage.RCode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[of] = code
}

// Silence makes the server answer nothing, or answer again.
func (s *DNSServer) Silence(isSilent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isSilent = isSilent
}

// Answers returns the number of answers so far. A lookup asks twice, for addresses of IPv4 and of
// IPv6.
func (s *DNSServer) Answers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answers
}

// OverTCP returns the number of answers over TCP so far.
func (s *DNSServer) OverTCP() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.overTCP
}

func (s *DNSServer) servePackets() {
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := s.packet.ReadFrom(buffer)
		if err != nil {
			return // closed
		}
		if answer := s.answer(buffer[:n], dnsSize); answer != nil {
			_, _ = s.packet.WriteTo(answer, from) // the client asks again
		}
	}
}

func (s *DNSServer) serveStreams() {
	for {
		conn, err := s.stream.Accept()
		if err != nil {
			return // closed
		}
		s.serveStream(conn)
	}
}

func (s *DNSServer) serveStream(conn net.Conn) {
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	var size [2]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	question := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(conn, question); err != nil {
		return
	}
	if answer := s.answer(question, 1<<16-1); answer != nil {
		s.mu.Lock()
		s.overTCP++
		s.mu.Unlock()
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...))
	}
}

// answer returns the answer to a question, or nil if there is none. If it would be longer than
// most, it says that it was cut.
func (s *DNSServer) answer(question []byte, most int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var in dnsmessage.Message
	if err := in.Unpack(question); err != nil || len(in.Questions) != 1 {
		return nil
	}
	if s.isSilent {
		return nil
	}
	s.answers++
	q := in.Questions[0]
	addresses, known := s.names[q.Name.String()]
	out := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: in.ID, Response: true, RecursionDesired: in.RecursionDesired, RecursionAvailable: true, RCode: s.codes[q.Type]},
		Questions: in.Questions,
	}
	if out.RCode == dnsmessage.RCodeSuccess && (!known || len(addresses) == 0) {
		out.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		if of, body := record(a); of == q.Type && out.RCode == dnsmessage.RCodeSuccess {
			out.Answers = append(out.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Type: of, Class: dnsmessage.ClassINET, TTL: 5}, Body: body,
			})
		}
	}
	packed, err := out.Pack()
	if err == nil && len(packed) > most {
		out.Answers, out.Truncated = nil, true
		packed, err = out.Pack()
	}
	if err != nil {
		return nil
	}
	return packed
}

func record(a netip.Addr) (dnsmessage.Type, dnsmessage.ResourceBody) {
	if a.Is4() {
		return dnsmessage.TypeA, &dnsmessage.AResource{A: a.As4()}
	}
	return dnsmessage.TypeAAAA, &dnsmessage.AAAAResource{AAAA: a.As16()}
}
