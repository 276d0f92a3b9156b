// Command mutants breaks the window engine in many ways, one at a time, and sees
// whether a test notices. It changes no file: each mutant is an overlay that only
// one run of go test sees.
//
//	go run ./test/mutants                     # all
//	go run ./test/mutants -only edge          # those with the text in their name
//
// mutants.txt lists the mutants: the file, the old and the new text, and the packages whose
// tests should notice. The tests run with go test -short unless the mutant says "long".
//
// A mutant that survives is a hole in the tests, unless the list says why no test can notice
// ("survives"). The command fails if another mutant survives, or if a test notices a listed
// survivor. It also fails if the old text is not in its file exactly once: the code has
// changed since the list was written.
package main
