package console

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/slidegate/slidegate/internal/core/grant"
	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

func (c *Console) audit(w http.ResponseWriter, r *http.Request) {
	all := peers.Ask(r.Context(), c.opts.Peers, "/v1/resets", insight.Resets{Resets: c.opts.Insight.Audit()}, merge.Resets)
	c.show(w, r, http.StatusOK, view{Page: "audit", Title: "Audit", Refresh: 5, Instances: all.Instances, Data: auditPage{all.Resets, c.opts.Insight.Grants()}})
}

// auditPage is the content of the page of resets and grants.
type auditPage struct {
	Resets []insight.Reset
	Grants []*grant.Grant
}

// Granted returns the subject of a grant.
func (auditPage) Granted(c grant.Caller) insight.Query {
	return insight.Query{Subject: c.Subject, Address: c.Address, Digest: c.Digest}
}

// SubjectOf returns the name of the subject of a reset or a grant.
func (auditPage) SubjectOf(q insight.Query) string {
	switch {
	case q.Subject != "":
		return q.Subject
	case q.Address != "":
		return q.Address
	case q.Digest != "":
		return "key " + tier.ShortDigest(q.Digest) + "…"
	}
	return q.Descriptor
}

// Link returns the address of the page of a subject. It is empty for a descriptor.
func (auditPage) Link(q insight.Query) string {
	if q.Descriptor != "" {
		return ""
	}
	return subjectAddress(q)
}

// loginPage is the content of the login.
type loginPage struct {
	// Wrong says why the token is not accepted.
	Wrong string
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	c.showLogin(w, r, http.StatusOK, "")
}

func (c *Console) showLogin(w http.ResponseWriter, r *http.Request, code int, wrong string) {
	c.show(w, r, code, view{Page: "login", Title: "Log in", Data: loginPage{wrong}})
}

func (c *Console) logIn(w http.ResponseWriter, r *http.Request) {
	err := c.opts.Access.LogIn(w, r, r.PostForm.Get("token"))
	if err == nil {
		seeOther(w, cameFrom(r))
		return
	}
	wrong := "The token is not in admin.token_file. Check that it was copied in full."
	if errors.Is(err, admin.ErrNoTokens) {
		wrong = "The service knows no token. Set admin.token_file."
	}
	c.showLogin(w, r, http.StatusForbidden, wrong)
}

// cameFrom returns the page of this console that showed the login, or the customer that the address of
// the login names, or else the overview.
func cameFrom(r *http.Request) string {
	u, err := url.Parse(r.Referer())
	if err != nil || u.Host != r.Host {
		return "/"
	}
	if u.Path == "/login" {
		q := u.Query()
		if to := subjectAddress(insight.Query{Subject: q.Get("id"), Address: q.Get("address"), Digest: q.Get("digest")}); to != "/subject" {
			return to
		}
		return "/"
	}
	return "/" + strings.TrimLeft(u.RequestURI(), "/") // never the address of another host
}

func (c *Console) logOut(w http.ResponseWriter, r *http.Request) {
	c.opts.Access.LogOut(w, r)
	seeOther(w, "/login")
}
