package budgets

import (
	"os"
	"testing"

	"github.com/slidegate/slidegate/test/process"
)

func TestMain(m *testing.M) { os.Exit(process.Main(m)) }
