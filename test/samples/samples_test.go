// Package samples proves that the API server takes what config holds: the samples, and the installation as a whole;
// and that it turns down what cannot work, with words that say what to do.
package samples

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vmstate/vmstate/test/kube"
)

func TestMain(m *testing.M) { kube.Main(m, kube.ControllerManager) }

// objects reads every document of a file.
func objects(t *testing.T, text []byte) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, obj)
	}
}

func TestSamples(t *testing.T) {
	cluster := kube.Shared(t)
	root, err := kube.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "config", "samples", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no samples found: %v", err)
	}
	strict := client.FieldValidation(metav1.FieldValidationStrict)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			namespace := cluster.Namespace(t)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, obj := range objects(t, text) {
				obj.SetNamespace(namespace)
				if err := cluster.Client.Create(t.Context(), obj, strict); err != nil {
					t.Errorf("create %s %q: %v", obj.GetKind(), obj.GetName(), err)
				}
			}
		})
	}
}

// refusal is one cause that the API server gives.
type refusal struct{ Field, Message string }

// refusals are all causes of err, and its whole text.
func refusals(t *testing.T, err error) ([]refusal, string) {
	t.Helper()
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		t.Fatalf("the API server did not refuse: %v", err)
	}
	var out []refusal
	for _, cause := range status.ErrStatus.Details.Causes {
		if cause.Field == "<nil>" { // says only that some rules wait until the other causes are gone
			continue
		}
		out = append(out, refusal{cause.Field, cause.Message})
	}
	slices.SortFunc(out, func(a, b refusal) int { return strings.Compare(a.Field+a.Message, b.Field+b.Message) })
	return out, err.Error()
}

func TestRefused(t *testing.T) {
	cluster := kube.Shared(t)
	namespace := cluster.Namespace(t)
	for name, tc := range refusedCases() {
		t.Run(name, func(t *testing.T) {
			obj := objects(t, []byte(tc.yaml))[0]
			obj.SetAPIVersion("vmstate.io/v1alpha1")
			obj.SetNamespace(namespace)
			obj.SetName("refused")
			got, text := refusals(t, cluster.Client.Create(t.Context(), obj))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\ncauses (-want +got):\n%s", tc.reason, diff)
			}
			if tc.secret != "" && strings.Contains(strings.ToUpper(text), strings.ToUpper(tc.secret)) {
				t.Errorf("the refusal repeats the secret:\n%s", text)
			}
		})
	}
}

func TestSpecsDoNotChange(t *testing.T) {
	cluster := kube.Shared(t)
	namespace := cluster.Namespace(t)
	for name, tc := range changeCases() {
		t.Run(name, func(t *testing.T) {
			obj := objects(t, []byte(tc.yaml))[0]
			obj.SetAPIVersion("vmstate.io/v1alpha1")
			obj.SetNamespace(namespace)
			if err := cluster.Client.Create(t.Context(), obj); err != nil {
				t.Fatal(err)
			}
			patch := client.RawPatch("application/merge-patch+json", []byte(tc.patch))
			err := cluster.Client.Patch(t.Context(), obj, patch)
			if tc.want == nil {
				if err != nil {
					t.Errorf("this may change: %v", err)
				}
				return
			}
			got, _ := refusals(t, err)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("causes (-want +got):\n%s", diff)
			}
		})
	}
}
