package unary

// MaxWaiting is maxWaiting, for tests.
const MaxWaiting = maxWaiting
