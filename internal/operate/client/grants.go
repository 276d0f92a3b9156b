package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
)

// Grants returns the grants that an instance knows.
func (c *Client) Grants(ctx context.Context, to Instance) (*admin.Grants, error) {
	return get[admin.Grants](ctx, c, to, "/v1/grants", nil)
}

// Grant makes a grant in each instance: those that share a store answer with the grant of the first one.
func (c *Client) Grant(ctx context.Context, request insight.GrantRequest) []merge.Answer[grant.Grant] {
	return inTurn[grant.Grant](ctx, c, http.MethodPost, "/v1/grants", request)
}

// Revoke ends a grant. Instances that do not have it any more, because another one shares their store,
// are left out if one had it.
func (c *Client) Revoke(ctx context.Context, id string) []merge.Answer[grant.Grant] {
	all := inTurn[grant.Grant](ctx, c, http.MethodDelete, "/v1/grants/"+url.PathEscape(id), nil)
	if len(merge.Answered(all)) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(a merge.Answer[grant.Grant]) bool {
		refusal := new(Refusal)
		return errors.As(a.Err, &refusal) && refusal.Status == http.StatusNotFound
	})
}
