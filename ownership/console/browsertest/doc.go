// Package browsertest looks at the console in a real browser: Debian's Chromium,
// headless, at live clusters of the built binary. It is a module of its own, for
// what it needs.
//
// A Page collects what the browser has to complain of: errors on the console,
// exceptions, violations of the content security policy, and what cannot be loaded.
// At the end of its test any of it is a failure, unless the page was told to expect
// it. Where Chromium is missing the tests are skipped, or fail when LEASEHOLD_CI is
// set; the flag -screenshots names a directory for pictures of what was seen.
//
// Goroutines: those of chromedp, one browser for the process and one tab for each
// page; none is left when Close has returned.
package browsertest
