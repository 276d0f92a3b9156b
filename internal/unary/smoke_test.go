package unary_test

import (
	"testing"
	"testing/synctest"

	"github.com/slidegate/slidegate/internal/unary"
)

func TestSmoke(t *testing.T) {
	for _, k := range []kind{standard} {
		t.Run(k.name, func(t *testing.T) {
			s := newStage(t, k, unary.Options{}, loopback(t))
			p := s.connect(t)
			p.echo()
			for _, c := range []string{"Fail", "Tell", "Set", "Large", "Panic", "Ready", "Stream", "None"} {
				t.Logf("%s: %v", c, p.call(c, value("13:x é")))
			}
			t.Logf("%q", content(t, p.call("Tell", value("x"), "a-bin: AQI", "b: c", "grpc-timeout: 5S", "te: x")))
			t.Log(p.call("Large", value("3000000")))
			p.sound()
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, k, unary.Options{}, pipes())
				p := s.connect(t)
				p.echo()
				t.Log(p.call("Large", value("3000000")))
				t.Log(p.call("Wait", nil, "grpc-timeout: 5S"))
				p.sound()
			})
		})
	}
}
