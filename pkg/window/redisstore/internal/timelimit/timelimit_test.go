package timelimit_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slidegate/slidegate/pkg/window/redisstore/internal/timelimit"
)

const limit = 15 * time.Millisecond

func isDone(c context.Context) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

// TestLimit lets calls begin at random, and end at random or never.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := timelimit.New(limit)
		random := rand.New(rand.NewPCG(1, 2))
		var calls []*timelimit.Context
		begun, ended := make(map[*timelimit.Context]time.Time), make(map[*timelimit.Context]bool)
		for range 2000 {
			time.Sleep(time.Duration(random.IntN(int(limit) / 3)))
			if random.IntN(20) == 0 {
				time.Sleep(3 * limit) // the timer has nothing to fire for
			}
			synctest.Wait()
			c := l.Begin()
			begun[c], calls = time.Now(), append(calls, c)
			if at, ok := c.Deadline(); !ok || !at.Equal(time.Now().Add(limit)) {
				t.Fatalf("the deadline is %v", at)
			}
			if random.IntN(2) == 0 {
				c.Done() // before the end
			}
			for _, c := range calls[max(0, len(calls)-20):] {
				var want error
				switch late := time.Since(begun[c]) >= limit; {
				case ended[c]:
					want = context.Canceled
				case late:
					want = context.DeadlineExceeded
				}
				if got := c.Err(); !errors.Is(got, want) || isDone(c) != (want != nil) {
					t.Fatalf("after %v, ended %v: error %v, want %v", time.Since(begun[c]), ended[c], got, want)
				}
			}
			if c := calls[random.IntN(len(calls))]; random.IntN(2) == 0 && c.Err() == nil {
				c.End()
				ended[c] = true
			}
			if random.IntN(4) == 0 {
				c.End()
				ended[c] = true
			}
		}
		for _, c := range calls {
			c.End()
			c.End()
		}
	})
}

// TestWaits has a goroutine wait for the limit, and one for the end.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := timelimit.New(limit)
		began := time.Now()
		c, other := l.Begin(), l.Begin()
		child, cancel := context.WithTimeout(other, time.Hour)
		defer cancel()
		time.AfterFunc(limit/3, other.End)
		<-child.Done()
		if got := time.Since(began); got != limit/3 || !errors.Is(child.Err(), context.Canceled) {
			t.Errorf("the call has ended after %v: %v", got, child.Err())
		}
		<-c.Done()
		if got := time.Since(began); got != limit || !errors.Is(c.Err(), context.DeadlineExceeded) {
			t.Errorf("the time has passed after %v: %v", got, c.Err())
		}
		if c.Value("key") != nil {
			t.Error("there is a value")
		}
	})
}

func BenchmarkBegin(b *testing.B) {
	l := timelimit.New(limit)
	b.ReportAllocs()
	for b.Loop() {
		c := l.Begin()
		c.Done() // as the pool of go-redis asks for each call
		c.End()
	}
}

func BenchmarkWithTimeout(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		c, cancel := context.WithTimeout(context.Background(), limit)
		c.Done()
		cancel()
	}
}
