// Package e2e plays the product's main paths on a real cluster with real guests. Its tests carry
// the build tag e2e; `make e2e` runs them.
package e2e
