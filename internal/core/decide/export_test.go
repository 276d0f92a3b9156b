package decide

// What tests need that compare decisions with what package explain says of them.
var (
	NewModes   = newModes
	NewCounted = newDecider
	NewMonthly = newMonthly
	Decided    = decide
	Say        = say
	AddOnce    = addOnce
	Once       = once
)

// RecordingStore is a store that returns fixed decisions.
type RecordingStore = recordingStore

// Decider returns the decider of m.
func (m *monthly) Decider() *Decider { return m.decider }

// Asked reports whether a rule got a quota check.
func (d *Decider) Asked(rule int) bool { return d.active.Load().asked[rule].Load() != askedCosts }
