package sdk

import (
	"fmt"
	"os"
	"testing"

	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) {
	if os.Getenv(envSDKs) == "" {
		fmt.Println("sdk: the tests with SDKs do not run here; run make sdk-test")
		return
	}
	os.Exit(process.Main(m))
}
