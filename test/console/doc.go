// Package console tests the pages of the console in a real Chromium.
//
// Most tests run rls itself, with rules, tiers and traffic. A state that rls reaches only after
// hours is made by package consoletest.
//
// A page has a fault if the browser writes a message to its console, refuses something by the
// content security policy, requests another host, or fails a request; if axe-core finds something
// serious; or if the page scrolls sideways. make test looks at each page in one of four ways: light
// or dark, on a wide or a narrow screen. make test-console and make test-long look in all of them.
//
// TestScreenshots writes the pictures of the documentation: make console-screenshots.
// TestSite reads the site of the documentation: make docs-site-check.
//
// It is a module of its own, so that the client of the browser stays out of the module of rls.
// SLIDEGATE_TEST_AXE is the path of axe.min.js, which make test sets.
package console
