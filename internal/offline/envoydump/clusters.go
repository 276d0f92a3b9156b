package envoydump

// TCPProxy forwards connections.
type TCPProxy struct {
	Cluster  string `json:"cluster"`
	Weighted struct {
		Clusters []WeightedCluster `json:"clusters"`
	} `json:"weighted_clusters"`
}

// A Cluster is what Envoy calls.
type Cluster struct {
	Name            string `json:"name"`
	Type            string `json:"type"`
	Custom          Filter `json:"cluster_type"` // in place of Type
	TransportSocket *struct {
		Config Any `json:"typed_config"`
	} `json:"transport_socket"`
	SocketMatches []struct{}     `json:"transport_socket_matches"`
	Options       map[string]Any `json:"typed_extension_protocol_options"`
	HTTP2         *HTTP2         `json:"http2_protocol_options"`
	Breakers      struct {
		Thresholds []struct {
			Priority    string  `json:"priority"`        // empty: DEFAULT
			Requests    *uint32 `json:"max_requests"`    // nil: 1024
			Connections *uint32 `json:"max_connections"` // nil: 1024
		} `json:"thresholds"`
	} `json:"circuit_breakers"`
	Outliers *struct{} `json:"outlier_detection"`
	LB       struct {
		Panic *struct {
			Value float64 `json:"value"`
		} `json:"healthy_panic_threshold"`
	} `json:"common_lb_config"`
	Assignment Assignment `json:"load_assignment"`
	EDS        struct {
		Service string `json:"service_name"`
	} `json:"eds_cluster_config"`
}

// An Assignment has the endpoints of a cluster.
type Assignment struct {
	Cluster   string `json:"cluster_name"`
	Endpoints []struct {
		LB []struct{} `json:"lb_endpoints"`
	} `json:"endpoints"`
}

// Empty reports whether there is no endpoint.
func (a *Assignment) Empty() bool {
	for _, e := range a.Endpoints {
		if len(e.LB) > 0 {
			return false
		}
	}
	return true
}

// HTTPOptions are the protocols in which Envoy calls a cluster.
type HTTPOptions struct {
	Explicit *struct {
		HTTP1 *struct{} `json:"http_protocol_options"`
		HTTP2 *HTTP2    `json:"http2_protocol_options"`
	} `json:"explicit_http_config"`
	Downstream *struct{} `json:"use_downstream_protocol_config"`
	Auto       *struct{} `json:"auto_config"`
}

// HTTP2 are the options of HTTP/2.
type HTTP2 struct {
	Streams *uint32 `json:"max_concurrent_streams"`
}

// UpstreamTLS is a cluster that Envoy calls over TLS.
type UpstreamTLS struct {
	Common struct {
		Certificates []struct {
			Chain DataSource `json:"certificate_chain"`
		} `json:"tls_certificates"`
		Discovered []struct{} `json:"tls_certificate_sds_secret_configs"`
		Validation *struct {
			CA       *DataSource `json:"trusted_ca"`
			System   *struct{}   `json:"system_root_certs"`
			Provider *struct{}   `json:"ca_certificate_provider_instance"`
			Hashes   []string    `json:"verify_certificate_hash"`
			Keys     []string    `json:"verify_certificate_spki"`
			Trust    string      `json:"trust_chain_verification"`
		} `json:"validation_context"`
		Combined *struct{} `json:"combined_validation_context"`
		SDS      *struct{} `json:"validation_context_sds_secret_config"`
	} `json:"common_tls_context"`
}

// A DataSource may be a file.
type DataSource struct {
	File string `json:"filename"`
}

// Verifies reports whether Envoy verifies the certificate of the other side.
func (t *UpstreamTLS) Verifies() bool {
	v := t.Common.Validation
	return t.Common.Combined != nil || t.Common.SDS != nil ||
		v != nil && v.Trust != "ACCEPT_UNTRUSTED" && (v.CA != nil || v.System != nil || v.Provider != nil || len(v.Hashes)+len(v.Keys) > 0)
}

// Files are the files of certificates: those that Envoy presents, and those that it trusts. If discovered,
// a discovery service has others.
func (t *UpstreamTLS) Files() (all []string, discovered bool) {
	c := &t.Common
	for _, one := range c.Certificates {
		all = append(all, one.Chain.File)
	}
	if c.Validation != nil && c.Validation.CA != nil {
		all = append(all, c.Validation.CA.File)
	}
	return all, len(c.Discovered) > 0 || c.Combined != nil || c.SDS != nil
}

// A Host is one endpoint of a cluster, with its health.
type Host struct {
	Address Address `json:"address"`
	Health  struct {
		FailedCheck   bool   `json:"failed_active_health_check"`
		FailedOutlier bool   `json:"failed_outlier_check"`
		EDS           string `json:"eds_health_status"`
	} `json:"health_status"`
	Stats []struct {
		Name  string `json:"name"`
		Value uint64 `json:"value,string"`
	} `json:"stats"`
}

// Out reports whether Envoy calls the host only if no other is left.
func (h *Host) Out() bool {
	eds := h.Health.EDS
	return h.Health.FailedCheck || h.Health.FailedOutlier || eds == "UNHEALTHY" || eds == "DRAINING" || eds == "TIMEOUT"
}

// Stat returns a counter of the host, such as cx_connect_fail.
func (h *Host) Stat(name string) uint64 {
	for _, s := range h.Stats {
		if s.Name == name {
			return s.Value
		}
	}
	return 0
}

// A Certificate is one that Envoy presents, or one that it trusts.
type Certificate struct {
	Path string `json:"path"`
	Days uint64 `json:"days_until_expiration,string"`
}
