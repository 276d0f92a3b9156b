module github.com/slidegate/slidegate/contrib/echolimit

go 1.26.0

require (
	// Middleware for Echo.
	github.com/labstack/echo/v5 v5.4.4
	github.com/slidegate/slidegate v0.0.0
)

require (
	github.com/maypok86/otter/v2 v2.4.0 // indirect
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	go.uber.org/multierr v1.10.0 // indirect
	go.uber.org/zap v1.28.0 // indirect
	go.yaml.in/yaml/v2 v2.4.4 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/slidegate/slidegate => ../..
