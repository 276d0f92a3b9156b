package admin

import "context"

func fakeExplain(context.Context, ExplainRequest) (*Explained, error) {
	return &Explained{Allowed: true, Steps: []string{"descriptor 1"}, Generation: "g"}, nil
}

func fakeReload(context.Context) error { return nil }
