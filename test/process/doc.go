// Package process starts programs for tests, on ports of the loopback interface. It builds
// commands of this module, collects their output, waits until they serve, and ends them.
//
// A function that takes a TB starts programs that end with the test. Run gives a TB to a
// program that is not a test, and turns a failure into an error.
//
// If a server is not installed, Missing skips the test and says what to install.
// With CI=true in the environment the test fails instead.
package process
