package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testv1 "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/slidegate/slidegate/limiter"
	"github.com/slidegate/slidegate/limiter/grpclimit"
	"github.com/slidegate/slidegate/pkg/window/memstore"
)

// One call a minute for each API key.
func Example() {
	rules, err := limiter.ParseRules("rules.yaml", []byte(`
domain: shop
descriptors:
  - key: api_key
    rate_limit: {name: per-key, unit: minute, requests_per_unit: 1}
`))
	if err != nil {
		log.Fatal(err)
	}
	store := memstore.New(memstore.Options{MaxBytes: 256 << 20})
	defer store.Close()
	l, err := limiter.New(store, rules)
	if err != nil {
		log.Fatal(err)
	}
	limit, err := grpclimit.New(l, grpclimit.Options{
		Domain:      "shop",
		Descriptors: [][]grpclimit.Key{{grpclimit.Metadata("api_key", "x-api-key")}},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
	defer server.Stop()
	testv1.RegisterTestServiceServer(server, &service{served: make(chan string, 2)})
	at, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	go server.Serve(at) //nolint:errcheck // the example ends with it

	conn, err := grpc.NewClient(at.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(context.Background(), "x-api-key", "k1")
	for range 2 {
		_, err := testv1.NewTestServiceClient(conn).EmptyCall(ctx, new(testv1.Empty))
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// ResourceExhausted
}
