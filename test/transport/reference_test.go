package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/bufbuild/protocompile"
	statusv1 "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
)

// The conformance suite starts the server that it calls, for each configuration
// one: this test binary with these two variables.
const (
	// envReference is the name of the server.
	envReference = "TRANSPORT_REFERENCE"
	// envProtos is the directory of the suite's .proto files. Its Go code is not for
	// others.
	envProtos = "TRANSPORT_PROTOS"
)

// A reference is the suite's service, and the messages in which the suite and the
// process that serves it speak with each other.
type reference struct {
	files protoreflect.FileDescriptor // of the service
	setup protoreflect.FileDescriptor // of requests for a server
}

// readReference compiles the .proto files in a directory.
func readReference(ctx context.Context, dir string) (*reference, error) {
	c := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}})}
	files, err := c.Compile(ctx, "connectrpc/conformance/v1/service.proto", "connectrpc/conformance/v1/server_compat.proto")
	if err != nil {
		return nil, err
	}
	return &reference{files: files[0], setup: files[1]}, nil
}

// serveReference is the process that the suite starts: it reads its configuration,
// writes its address, and serves until SIGTERM.
func serveReference(name, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r, err := readReference(ctx, dir)
	if err != nil {
		return err
	}
	request := field{dynamicpb.NewMessage(r.setup.Messages().ByName("ServerCompatRequest"))}
	if err := readDelimited(os.Stdin, request.Interface()); err != nil {
		return err
	}
	o := options{maxMessageBytes: int(request.get("message_receive_limit").Uint())}
	certificate := request.message("server_creds").get("cert").Bytes()
	if request.get("use_tls").Bool() {
		o.tls, err = tlsConfig(certificate, request.message("server_creds").get("key").Bytes(), request.get("client_tls_cert").Bytes())
		if err != nil {
			return err
		}
	}

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := newServer(name, o)
	r.register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()

	response := field{dynamicpb.NewMessage(r.setup.Messages().ByName("ServerCompatResponse"))}
	response.set("host", protoreflect.ValueOfString("127.0.0.1"))
	response.set("port", protoreflect.ValueOfUint32(uint32(l.Addr().(*net.TCPAddr).Port)))
	if o.tls != nil {
		response.set("pem_cert", protoreflect.ValueOfBytes(certificate))
	}
	if err := writeDelimited(os.Stdout, response.Interface()); err != nil {
		return err
	}
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		s.Stop()
		return <-served
	}
}

// tlsConfig is that of a server with a certificate, which asks for one of its
// clients if it is given theirs.
func tlsConfig(certificate, key, client []byte) (*tls.Config, error) {
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	if len(client) > 0 {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(client) {
			return nil, errors.New("the client's certificate is not PEM")
		}
	}
	return c, nil
}

// readDelimited reads a message behind its length.
func readDelimited(r io.Reader, m proto.Message) error {
	var length uint32
	if err := binary.Read(r, binary.BigEndian, &length); err != nil {
		return err
	}
	b := make([]byte, length)
	if _, err := io.ReadFull(r, b); err != nil {
		return err
	}
	return proto.Unmarshal(b, m)
}

// writeDelimited writes a message behind its length.
func writeDelimited(w io.Writer, m proto.Message) error {
	b, err := proto.Marshal(m)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	return err
}

// register registers the service's unary methods, but for Unimplemented, which is
// called to see that it is not there.
func (r *reference) register(to grpc.ServiceRegistrar) {
	service := r.files.Services().ByName("ConformanceService")
	desc := &grpc.ServiceDesc{ServiceName: string(service.FullName()), HandlerType: (*any)(nil)}
	for _, name := range []protoreflect.Name{"Unary", "IdempotentUnary"} {
		m := service.Methods().ByName(name)
		desc.Methods = append(desc.Methods, grpc.MethodDesc{
			MethodName: string(name),
			Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
				request := dynamicpb.NewMessage(m.Input())
				if err := decode(request); err != nil {
					return nil, err
				}
				return r.answer(ctx, request, m.Output())
			},
		})
	}
	to.RegisterService(desc, r)
}

// answer answers as the request's response definition requires.
func (r *reference) answer(ctx context.Context, request *dynamicpb.Message, output protoreflect.MessageDescriptor) (proto.Message, error) {
	info, err := r.requestInfo(ctx, request)
	if err != nil {
		return nil, err
	}
	definition := field{request}.message("response_definition")
	if err := errors.Join(
		grpc.SetHeader(ctx, definition.metadata("response_headers")),
		grpc.SetTrailer(ctx, definition.metadata("response_trailers")),
	); err != nil {
		return nil, err
	}
	if delay := definition.get("response_delay_ms").Uint(); delay > 0 {
		// In some cases of the suite the call ends before the delay.
		select {
		case <-time.After(time.Duration(delay) * time.Millisecond):
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
	if definition.has("error") {
		return nil, definition.message("error").status(info)
	}
	response := field{dynamicpb.NewMessage(output)}
	payload := response.mutable("payload")
	payload.set("data", definition.get("response_data"))
	payload.set("request_info", protoreflect.ValueOfMessage(info))
	return response.Interface(), nil
}

// requestInfo returns the request as the server has got it.
func (r *reference) requestInfo(ctx context.Context, request *dynamicpb.Message) (protoreflect.Message, error) {
	info := field{dynamicpb.NewMessage(r.files.Messages().ByName("ConformancePayload").Messages().ByName("RequestInfo"))}
	md, _ := metadata.FromIncomingContext(ctx)
	headers := info.list("request_headers")
	for name, values := range md {
		h := field{headers.NewElement().Message()}
		h.set("name", protoreflect.ValueOfString(name))
		for _, v := range values {
			if strings.HasSuffix(name, "-bin") {
				v = base64.RawStdEncoding.EncodeToString([]byte(v))
			}
			h.list("value").Append(protoreflect.ValueOfString(v))
		}
		headers.Append(protoreflect.ValueOfMessage(h.Message))
	}
	if deadline, ok := ctx.Deadline(); ok {
		info.set("timeout_ms", protoreflect.ValueOfInt64(time.Until(deadline).Milliseconds()))
	}
	asked, err := anypb.New(request)
	if err != nil {
		return nil, err
	}
	b, err := proto.Marshal(asked)
	if err != nil {
		return nil, err
	}
	// The suite's own descriptor of Any is another one than Go's.
	requests := info.list("requests")
	element := requests.NewElement()
	if err := proto.Unmarshal(b, element.Message().Interface()); err != nil {
		return nil, err
	}
	requests.Append(element)
	return info.Message, nil
}

// A field is a message with access to its fields by name. A wrong name is a mistake in
// this file, and panics.
type field struct{ protoreflect.Message }

func (f field) descriptor(name protoreflect.Name) protoreflect.FieldDescriptor {
	d := f.Descriptor().Fields().ByName(name)
	if d == nil {
		panic(fmt.Sprintf("%s has no %s", f.Descriptor().FullName(), name))
	}
	return d
}

func (f field) has(name protoreflect.Name) bool { return f.Has(f.descriptor(name)) }

func (f field) get(name protoreflect.Name) protoreflect.Value { return f.Get(f.descriptor(name)) }

func (f field) set(name protoreflect.Name, v protoreflect.Value) { f.Set(f.descriptor(name), v) }

func (f field) message(name protoreflect.Name) field { return field{f.get(name).Message()} }

func (f field) mutable(name protoreflect.Name) field {
	return field{f.Mutable(f.descriptor(name)).Message()}
}

func (f field) list(name protoreflect.Name) protoreflect.List {
	return f.Mutable(f.descriptor(name)).List()
}

// metadata reads a list of headers.
func (f field) metadata(name protoreflect.Name) metadata.MD {
	md := metadata.MD{}
	for headers, i := f.get(name).List(), 0; i < headers.Len(); i++ {
		h := field{headers.Get(i).Message()}
		for values, j := h.get("value").List(), 0; j < values.Len(); j++ {
			md.Append(h.get("name").String(), text(h.get("name").String(), values.Get(j).String()))
		}
	}
	return md
}

// text is the value of a header as Go's API has it: that of a binary one is not
// encoded there.
func text(name, value string) string {
	if !strings.HasSuffix(name, "-bin") {
		return value
	}
	// With padding or without, as the protocol allows.
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
	if err != nil {
		return value
	}
	return string(b)
}

// status returns an error of the suite as gRPC's, with one more detail.
func (f field) status(detail protoreflect.Message) error {
	// Error.details and Status.details are the same type on the wire.
	out := &statusv1.Status{Code: int32(f.get("code").Enum()), Message: f.get("message").String()}
	for details, i := f.get("details").List(), 0; i < details.Len(); i++ {
		b, err := proto.Marshal(details.Get(i).Message().Interface())
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		a := new(anypb.Any)
		if err := proto.Unmarshal(b, a); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		out.Details = append(out.Details, a)
	}
	a, err := anypb.New(detail.Interface())
	if err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	out.Details = append(out.Details, a)
	return status.ErrorProto(out)
}
