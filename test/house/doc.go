// Package house checks what is in the repository: imports, names of the library, pages and their
// links, workflows, images.
package house
