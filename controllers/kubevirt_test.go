package controllers

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/vmstate/vmstate/test/kube"
)

// TestKubeVirtGone: KubeVirt is gone if the API server says that it serves no instances, and not if it does
// not answer, or does not know.
func TestKubeVirtGone(t *testing.T) {
	guestsOf := func(config *rest.Config) Guests {
		t.Helper()
		c, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		g, err := NewGuests(config, c)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	cluster := kube.Shared(t)
	real := guestsOf(cluster.Config)
	if real.Gone(t.Context()) {
		t.Error("KubeVirt's definitions are there, and are said to be gone")
	}
	server, ok := real.(subresources)
	if !ok {
		t.Fatalf("%T", real)
	}
	for name, c := range map[string]struct {
		gv       schema.GroupVersion
		resource string
	}{
		"Group":    {schema.GroupVersion{Group: "nobody.kubevirt.io", Version: "v1"}, "virtualmachineinstances"},
		"Resource": {schema.GroupVersion{Group: "kubevirt.io", Version: "v1"}, "nothings"},
	} {
		if gone, err := undefined(t.Context(), server.rest, c.gv, c.resource); !gone || err != nil {
			t.Errorf("%s that nobody defines: gone %t, %v", name, gone, err)
		}
	}
	answers := func(code int, body string) Guests {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body)) // the test's own server
		}))
		t.Cleanup(s.Close)
		return guestsOf(&rest.Config{Host: s.URL})
	}
	for name, g := range map[string]Guests{
		"Away":      guestsOf(&rest.Config{Host: "http://127.0.0.1:1"}),
		"Starting":  answers(http.StatusServiceUnavailable, ""),
		"Forbidden": answers(http.StatusForbidden, ""),
		"Nonsense":  answers(http.StatusOK, "{}"),
	} {
		if g.Gone(t.Context()) {
			t.Errorf("%s is taken for gone", name)
		}
	}
}
