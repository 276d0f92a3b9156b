// Package process starts the programs that tests run beside themselves, on ports
// of the loopback interface: it builds commands of this module, collects what a
// program prints, waits until it serves, and ends it.
//
// A function that takes a TB ends what it starts with the test. Run gives a TB to
// a program that is no test, and turns a failure into an error.
//
// If a server is not installed, Missing skips the test and says what to install.
// With CI=true in the environment the test fails instead.
package process
