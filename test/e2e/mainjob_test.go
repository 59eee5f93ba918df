//go:build e2e

package e2e

import "testing"

// TestMainJob is what make demo shows: promise 1 (one moment), 2 (one restore) and 4 (bucket and
// identity are enough), with the counter-example that shows that the test could fail.
func TestMainJob(t *testing.T) {
	if err := env.MainJob(t.Context(), told{t}); err != nil {
		check(t, "demo-prod", err)
	}
}
