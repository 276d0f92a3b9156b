package console

import (
	"errors"
	"net/http"

	"github.com/slidegate/slidegate/internal/core/tier"
	"github.com/slidegate/slidegate/internal/operate/admin"
	"github.com/slidegate/slidegate/internal/operate/insight"
	"github.com/slidegate/slidegate/internal/operate/merge"
	"github.com/slidegate/slidegate/internal/operate/peers"
)

func (c *Console) audit(w http.ResponseWriter, r *http.Request) {
	all := peers.Ask(r.Context(), c.opts.Peers, "/v1/resets", insight.Resets{Resets: c.opts.Insight.Audit()}, merge.Resets)
	c.show(w, r, http.StatusOK, view{Page: "audit", Title: "Audit", Refresh: 5, Instances: all.Instances, Data: auditPage{all.Resets}})
}

// auditPage is the content of the page of resets.
type auditPage struct{ Resets []insight.Reset }

// SubjectOf returns the name of the subject of a reset.
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
	c.show(w, r, http.StatusOK, view{Page: "login", Title: "Log in", Data: loginPage{}})
}

func (c *Console) logIn(w http.ResponseWriter, r *http.Request) {
	err := c.opts.Access.LogIn(w, r, r.PostForm.Get("token"))
	if err == nil {
		seeOther(w, "/")
		return
	}
	wrong := "The token is not in admin.token_file. Check that it was copied in full."
	if errors.Is(err, admin.ErrNoTokens) {
		wrong = "The service knows no token. Set admin.token_file."
	}
	c.show(w, r, http.StatusForbidden, view{Page: "login", Title: "Log in", Data: loginPage{wrong}})
}

func (c *Console) logOut(w http.ResponseWriter, r *http.Request) {
	c.opts.Access.LogOut(w, r)
	seeOther(w, "/login")
}
