module github.com/slidegate/slidegate/contrib/chilimit

go 1.26.0

require (
	// The route that a chi router chooses.
	github.com/go-chi/chi/v5 v5.5.0
	github.com/slidegate/slidegate v0.0.0
)

require go.yaml.in/yaml/v4 v4.0.0 // indirect

replace github.com/slidegate/slidegate => ../..
