// Command mutants breaks the window engine in many ways, one at a time, and sees
// whether a test notices. It changes no file: each mutant is an overlay that only
// one run of go test sees.
//
//	go run ./test/mutants                     # all
//	go run ./test/mutants -only edge          # those with the text in their name
//
// mutants.txt lists them: what is replaced by what, in which file, and which
// packages' tests should notice, as a rule without those that go test -short leaves
// out ("long" asks for them). A mutant that survives is a hole in the tests,
// unless the list says why no test can notice ("survives"); both kinds of
// surprise, a survivor and a listed one that is caught after all, make the
// command fail. So does a text that is not in its file exactly once: then the
// code has moved on and the list has not.
package main
