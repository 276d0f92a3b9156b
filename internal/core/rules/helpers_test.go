package rules_test

import "github.com/slidegate/slidegate/internal/core/coretest"

var secrets, anyOf, one, per, fits, rule, with, monthLimit, slidingLimit, bucketLimit, fixedLimit, counterLimit, inFlightLimit = coretest.Secrets, coretest.Any, coretest.One, coretest.Per, coretest.Fits, coretest.Rule, coretest.With, coretest.MonthLimit, coretest.SlidingLimit, coretest.BucketLimit, coretest.FixedLimit, coretest.CounterLimit, coretest.InFlightLimit
