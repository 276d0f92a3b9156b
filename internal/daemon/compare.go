package daemon

import (
	"fmt"
	"time"

	"github.com/slidegate/slidegate/internal/migrate/compare"
)

const (
	// compareTimeout bounds a call to the other service.
	compareTimeout = 2 * time.Second
	// maxCompared is how many calls are under way at once. Further ones are not compared.
	maxCompared = 100
)

// openCompare begins to compare answers with the service at compare.address, if the settings
// name one. It need not answer yet.
func (p *process) openCompare() (err error) {
	s := p.settings.Compare
	if s.Address == "" {
		return nil
	}
	o := compare.Options{
		Address: s.Address, Fraction: float64(s.Fraction), Timeout: compareTimeout, MaxInFlight: maxCompared,
		Secrets: p.generation.Secrets, Meters: p.measures.metrics.Comparisons(p.measures.registry), Log: p.logs.main,
	}
	if o.TLS, err = s.TLS.Config("compare.address"); err != nil {
		return err
	}
	if p.compare, err = compare.New(o); err != nil {
		return fmt.Errorf("compare.address: %w", err)
	}
	p.open.add(p.compare.Close)
	return nil
}
