// Package budgets proves that budgets hold behind a real Envoy: what it reserves and settles, and that
// the cost which the application has counted stays below the budget, whatever ends the streams.
package budgets
