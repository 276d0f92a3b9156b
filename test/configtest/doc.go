// Package configtest holds what the tests of the packages of config share.
package configtest
