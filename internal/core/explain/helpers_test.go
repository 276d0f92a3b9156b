package explain

import "github.com/slidegate/slidegate/internal/core/coretest"

var secrets, anyOf, one, per, fits, rule, with, directory, request, bucketLimit, fixedLimit, counterLimit = coretest.Secrets, coretest.Any, coretest.One, coretest.Per, coretest.Fits, coretest.Rule, coretest.With, coretest.Directory, coretest.Request, coretest.BucketLimit, coretest.FixedLimit, coretest.CounterLimit

type tester = coretest.T
