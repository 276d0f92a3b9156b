module github.com/slidegate/slidegate/contrib/echolimit

go 1.26.0

require (
	// Middleware for Echo.
	github.com/labstack/echo/v5 v5.4.4
	github.com/slidegate/slidegate v0.0.0
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	go.yaml.in/yaml/v4 v4.0.0 // indirect
)

replace github.com/slidegate/slidegate => ../..
