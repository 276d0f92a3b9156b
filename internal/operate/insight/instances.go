package insight

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slidegate/slidegate/internal/text/words"
)

// An Instance was asked for its part of an answer.
type Instance struct {
	Name     string `json:"name" doc:"the address of its admin port"`
	Answered bool   `json:"answered,omitempty"`
	Error    string `json:"error,omitempty" doc:"why it did not answer"`
	Count    int    `json:"count,omitempty" doc:"how many instances this is, if they have no name"`
}

// Instances are those that an answer is from, and those that did not answer. Empty: the answer is
// that of one instance, and nothing is known of others.
type Instances []Instance

// Missing returns those that did not answer.
func (of Instances) Missing() Instances {
	return slices.DeleteFunc(slices.Clone(of), func(i Instance) bool { return i.Answered })
}

// String says how many instances answered, and which did not.
func (of Instances) String() string {
	total, answered := 0, 0
	var names []string
	for _, i := range of {
		total += max(i.Count, 1)
		if i.Answered {
			answered++
		} else {
			names = append(names, i.Name)
		}
	}
	if names == nil {
		return "from " + words.Counted(uint64(total), "instance")
	}
	return fmt.Sprintf("from %d of %s; %s did not answer", answered, words.Counted(uint64(total), "instance"), strings.Join(names, ", "))
}
