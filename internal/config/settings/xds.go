package settings

// rulesSource checks rules.source and rules.xds.
func (l *settingsLoader) rulesSource() {
	const path = "rules.xds"
	r, x := &l.settings.Rules, &l.settings.Rules.XDS
	if r.Source == RulesXDS {
		if x.Address == "" {
			l.problem(path+".address", "is not set, and rules.source is xds: set host:port of the xDS server")
		}
		if r.Path != "" {
			l.problem("rules.path", "rules.source is xds, so rls reads no rules from files: remove rules.path, or set rules.source to files")
		}
	}
	if x.Address != "" {
		l.remote(path+".address", x.Address, true)
	}
	if x.NodeID == "" {
		l.problem(path+".node_id", "a node needs an id: servers choose the rules by it")
	}
	l.clientTLS(path+".tls", x.TLS)
}
