package compat

// A Group is variables of envoyproxy/ratelimit that belong together.
type Group struct {
	Title     string
	Variables []Variable
}

// A Variable describes one variable of envoyproxy/ratelimit in Markdown.
type Variable struct {
	Name    string
	Default string // of envoyproxy/ratelimit; empty: none
	Becomes string // the settings that it sets, and a remark
}

// Table returns every variable of envoyproxy/ratelimit, for docs/reference/drop-in.md.
func Table() []Group {
	var all []Group
	for _, g := range groups {
		group := Group{Title: g.title}
		for _, v := range g.variables {
			becomes := ""
			for i, path := range v.sets {
				if i > 0 {
					becomes += ", "
				}
				becomes += "`" + path + "`"
			}
			switch {
			case v.doc == "" && v.why != "":
				becomes = "no effect: " + v.why
			case becomes != "" && v.doc != "":
				becomes += ": "
			}
			group.Variables = append(group.Variables, Variable{v.name, v.def, becomes + v.doc})
		}
		all = append(all, group)
	}
	return all
}
