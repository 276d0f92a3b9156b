// Package ordered has a map that keeps the order of its entries.
package ordered

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A Map has entries that rarely change, in the order in which they were added. The zero value is an empty map. It is
// safe for concurrent use, but must not be copied.
type Map[K, V comparable] struct {
	of   sync.Map
	mu   sync.Mutex // of those who change entries
	list atomic.Pointer[[]V]
}

// Of returns the value of a key. If there is none, it adds one that fresh makes.
func (m *Map[K, V]) Of(key K, fresh func() V) V {
	if v, ok := m.of.Load(key); ok {
		return v.(V)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.of.Load(key); ok {
		return v.(V)
	}
	v := fresh()
	list := append(slices.Clip(m.values()), v)
	m.of.Store(key, v)
	m.list.Store(&list)
	return v
}

// Delete removes a key.
func (m *Map[K, V]) Delete(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.of.LoadAndDelete(key); ok {
		list := slices.DeleteFunc(slices.Clone(m.values()), func(other V) bool { return other == v.(V) })
		m.list.Store(&list)
	}
}

// All yields the values that are there when it begins.
func (m *Map[K, V]) All(yield func(V) bool) {
	for _, v := range m.values() {
		if !yield(v) {
			return
		}
	}
}

func (m *Map[K, V]) values() []V {
	if list := m.list.Load(); list != nil {
		return *list
	}
	return nil
}
