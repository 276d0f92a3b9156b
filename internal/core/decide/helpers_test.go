package decide

import "github.com/slidegate/slidegate/internal/core/coretest"

var secrets, anyOf, one, per, fits, rule, with, directory, testRules, request, d, slidingLimit, bucketLimit, fixedLimit, counterLimit, inFlightLimit = coretest.Secrets, coretest.Any, coretest.One, coretest.Per, coretest.Fits, coretest.Rule, coretest.With, coretest.Directory, coretest.Rules, coretest.Request, coretest.Descriptor, coretest.SlidingLimit, coretest.BucketLimit, coretest.FixedLimit, coretest.CounterLimit, coretest.InFlightLimit

type tester = coretest.T
