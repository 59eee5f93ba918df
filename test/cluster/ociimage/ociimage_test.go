package ociimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWriteIsSoundAndRepeatable(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	archive := Archive{
		Files: []File{{Source: program, Path: "/usr/bin/program", Capability: NetBindService}},
		Images: []Image{
			{Name: "localhost/a:1", User: "107", Entrypoint: []string{"/usr/bin/program"}},
			{Name: "localhost/b:1"},
		},
	}
	first, second := filepath.Join(dir, "first.tar"), filepath.Join(dir, "second.tar")
	for _, target := range []string{first, second} {
		if err := archive.Write(target); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(read(t, first), read(t, second)) {
		t.Error("the same archive written twice differs")
	}

	entries := untar(t, read(t, first))
	names := map[string]string{} // image name to the user of its configuration
	for _, manifest := range decode[index](t, entries["index.json"]).Manifests {
		m := decode[manifestFile](t, blobOf(t, entries, manifest.Digest))
		c := decode[configFile](t, blobOf(t, entries, m.Config.Digest))
		names[manifest.Annotations["io.containerd.image.name"]] = c.Config.User
		if diff := cmp.Diff([]string{m.Layers[0].Digest}, c.RootFS.DiffIDs); diff != "" {
			t.Errorf("layers and diff ids differ (-want +got):\n%s", diff)
		}
		layer := untar(t, blobOf(t, entries, m.Layers[0].Digest))
		want := map[string]string{"usr/": "", "usr/bin/": "", "usr/bin/program": "binary", "tmp/": ""}
		if diff := cmp.Diff(want, asText(layer)); diff != "" {
			t.Errorf("layer mismatch (-want +got):\n%s", diff)
		}
	}
	if diff := cmp.Diff(map[string]string{"localhost/a:1": "107", "localhost/b:1": ""}, names); diff != "" {
		t.Errorf("images mismatch (-want +got):\n%s", diff)
	}
}

func TestCapabilityTravelsInTheLayer(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	if err := writeFiles(&layer, []File{{Source: program, Path: "/program", Capability: NetBindService}}); err != nil {
		t.Fatal(err)
	}
	header, err := tar.NewReader(&layer).Next()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"SCHILY.xattr.security.capability": string(NetBindService)}
	if diff := cmp.Diff(want, header.PAXRecords); diff != "" {
		t.Errorf("records mismatch (-want +got):\n%s", diff)
	}
}

type index struct{ Manifests []descriptor }

type manifestFile struct {
	Config descriptor
	Layers []descriptor
}

type configFile struct {
	Config struct{ User string }
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	entries := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		if entries[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

// blobOf returns a blob and checks that its content has the digest of its name.
func blobOf(t *testing.T, entries map[string][]byte, digest string) []byte {
	t.Helper()
	content, ok := entries[blobPath(digest)]
	if !ok {
		t.Fatalf("no blob %s", digest)
	}
	sum := sha256.Sum256(content)
	if got := hex.EncodeToString(sum[:]); got != strings.TrimPrefix(digest, "sha256:") {
		t.Fatalf("blob %s has digest %s", digest, got)
	}
	return content
}

func decode[T any](t *testing.T, raw []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func asText(entries map[string][]byte) map[string]string {
	text := map[string]string{}
	for name, content := range entries {
		text[name] = string(content)
	}
	return text
}
