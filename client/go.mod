module github.com/slidegate/slidegate/client

go 1.26.0

// Tests: random histories that shrink.
require pgregory.net/rapid v1.3.0
