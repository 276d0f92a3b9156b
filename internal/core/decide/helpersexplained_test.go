package decide_test

import "github.com/slidegate/slidegate/internal/core/coretest"

var secrets, anyOf, one, per, rule, with, request, d = coretest.Secrets, coretest.Any, coretest.One, coretest.Per, coretest.Rule, coretest.With, coretest.Request, coretest.Descriptor
