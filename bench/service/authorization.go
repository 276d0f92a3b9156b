package main

import (
	"fmt"
	"net/http"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/slidegate/slidegate/bench/internal/traffic"
)

// authenticated is a Check that finds the subject of an API key and decides no limit.
func authenticated() scenario {
	return scenario{
		Call:    check(map[string]string{"route": "orders"}, 0, 2),
		name:    "authentication",
		outcome: "allowed", // nothing is decided
	}
}

// oneHop is a Check that decides a limit too.
func oneHop() scenario {
	return scenario{
		Call: check(map[string]string{"route": "orders", "domain": "bench", "descriptors": "api_key"}, 2, 5),
		name: "one-hop", descriptors: 1,
		outcome: "allowed", decisions: 1,
	}
}

// check returns a Check that must pass. toClient and metadata are the fewest headers for the client and
// fields of metadata.
func check(context map[string]string, toClient, metadata int) traffic.Call {
	return traffic.Call{
		Method: authv3.Authorization_Check_FullMethodName, Request: checkRequest(context),
		Check: func(m proto.Message) error { return checkPasses(m.(*authv3.CheckResponse), toClient, metadata) },
	}
}

// checkRequest is Envoy's Check of a browser's request with all headers, which is
// Envoy's default.
func checkRequest(context map[string]string) *authv3.CheckRequest {
	address := func(host string, port uint32) *authv3.AttributeContext_Peer {
		return &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port}},
		}}}
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source:      address("198.51.100.7", 49152),
		Destination: address("192.0.2.10", 10000),
		Request: &authv3.AttributeContext_Request{
			Time: &timestamppb.Timestamp{Seconds: 1767225600, Nanos: 123456000},
			Http: &authv3.AttributeContext_HttpRequest{
				Id:       "9131217467313423562",
				Method:   http.MethodGet,
				Host:     "api.example.com",
				Path:     "/v1/orders?page=2&sort=created",
				Scheme:   "https",
				Protocol: "HTTP/2",
				Headers: map[string]string{
					":authority":        "api.example.com",
					":method":           http.MethodGet,
					":path":             "/v1/orders?page=2&sort=created",
					":scheme":           "https",
					"accept":            "application/json",
					"accept-encoding":   "gzip, deflate, br",
					"accept-language":   "en-GB,en;q=0.9",
					"user-agent":        "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
					"x-api-key":         largeKey,
					"x-forwarded-for":   "198.51.100.7",
					"x-forwarded-proto": "https",
					"x-request-id":      "0b7c9f6e-6f0a-4c6b-9d5b-3a3b2f1f6d11",
				},
			},
		},
		ContextExtensions:    context,
		MetadataContext:      new(corev3.Metadata),
		RouteMetadataContext: new(corev3.Metadata),
	}}
}

// checkPasses returns an error unless an answer lets the request pass, with headers for
// the upstream.
func checkPasses(a *authv3.CheckResponse, toClient, metadata int) error {
	switch {
	case a.GetStatus() == nil || codes.Code(a.GetStatus().GetCode()) != codes.OK:
		return fmt.Errorf("status is %v, want OK", a.GetStatus())
	case len(a.GetOkResponse().GetHeaders()) < 2:
		return fmt.Errorf("answer has %d headers for the upstream, want at least those of subject and tier", len(a.GetOkResponse().GetHeaders()))
	case len(a.GetOkResponse().GetResponseHeadersToAdd()) < toClient:
		return fmt.Errorf("answer has %d headers for the client, want at least %d", len(a.GetOkResponse().GetResponseHeadersToAdd()), toClient)
	case len(a.GetDynamicMetadata().GetFields()) < metadata:
		return fmt.Errorf("answer has %d fields of dynamic metadata, want at least %d", len(a.GetDynamicMetadata().GetFields()), metadata)
	}
	return nil
}
