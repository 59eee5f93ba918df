// Package ociimage writes container images as OCI archives that `ctr images import` takes.
//
// It knows two kinds of layer: a tar file that exists already, and single files put at chosen paths. Layers are not
// compressed, since the archive never leaves the machine. The same input gives the same bytes.
package ociimage

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
)

// Capability is a file capability set as the kernel stores it in the attribute security.capability.
type Capability string

// NetBindService lets a file's process bind ports below 1024 (effective and permitted, revision 2 of the format).
const NetBindService Capability = "\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"

// File is one regular file of an image.
type File struct {
	// Source is read, Path is where it goes (absolute).
	Source, Path string
	// Capability is given to the file if not empty.
	Capability Capability
}

// Image is one name for the shared layers.
type Image struct {
	// Name must be fully qualified, like localhost/vmstate:dev: containerd reads other names as Docker Hub's.
	Name string
	// User is "uid" or "uid:gid"; empty is root.
	User       string
	Entrypoint []string
}

// Archive is one or more images that share all their layers.
type Archive struct {
	// Tars are layers that exist as uncompressed tar files, lowest first.
	Tars []string
	// Files become one more layer on top. It has a /tmp that everyone may write to.
	Files  []File
	Images []Image
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

const (
	mediaLayer    = "application/vnd.oci.image.layer.v1.tar"
	mediaConfig   = "application/vnd.oci.image.config.v1+json"
	mediaManifest = "application/vnd.oci.image.manifest.v1+json"
	mediaIndex    = "application/vnd.oci.image.index.v1+json"
)

// Write writes the archive to the file target, replacing it.
func (a Archive) Write(target string) (err error) {
	out, err := os.Create(target)
	if err != nil {
		return err
	}
	defer func() {
		if closing := out.Close(); err == nil {
			err = closing
		}
	}()
	w := &writer{tar: tar.NewWriter(out)}
	if err := a.write(w); err != nil {
		return fmt.Errorf("write image archive %q: %w", target, err)
	}
	return w.tar.Close()
}

func (a Archive) write(w *writer) error {
	if err := w.bytes("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	layers, err := a.layers(w)
	if err != nil {
		return err
	}
	var manifests []descriptor
	for _, image := range a.Images {
		manifest, err := w.image(image, layers)
		if err != nil {
			return err
		}
		manifests = append(manifests, manifest)
	}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": mediaIndex, "manifests": manifests})
	if err != nil {
		return err
	}
	return w.bytes("index.json", index)
}

func (a Archive) layers(w *writer) ([]descriptor, error) {
	var layers []descriptor
	for _, name := range a.Tars {
		layer, err := w.layer(name)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	if len(a.Files) == 0 {
		return layers, nil
	}
	scratch, err := os.CreateTemp("", "layer-*.tar")
	if err != nil {
		return nil, err
	}
	defer os.Remove(scratch.Name())
	err = writeFiles(scratch, a.Files)
	if closing := scratch.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, err
	}
	layer, err := w.layer(scratch.Name())
	return append(layers, layer), err
}

// writer puts blobs into the archive; each blob is there once, however many images use it.
type writer struct {
	tar  *tar.Writer
	seen map[string]bool
}

func (w *writer) bytes(name string, content []byte) error {
	if err := w.tar.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.tar.Write(content)
	return err
}

func (w *writer) blob(content []byte, mediaType string) (descriptor, error) {
	sum := sha256.Sum256(content)
	d := descriptor{MediaType: mediaType, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(content))}
	if w.has(d.Digest) {
		return d, nil
	}
	return d, w.bytes(blobPath(d.Digest), content)
}

func (w *writer) layer(name string) (descriptor, error) {
	in, err := os.Open(name)
	if err != nil {
		return descriptor{}, err
	}
	defer in.Close()
	hash := sha256.New()
	size, err := io.Copy(hash, in)
	if err != nil {
		return descriptor{}, fmt.Errorf("hash layer %q: %w", name, err)
	}
	d := descriptor{MediaType: mediaLayer, Digest: "sha256:" + hex.EncodeToString(hash.Sum(nil)), Size: size}
	if w.has(d.Digest) {
		return d, nil
	}
	if _, err := in.Seek(0, io.SeekStart); err != nil {
		return descriptor{}, err
	}
	if err := w.tar.WriteHeader(&tar.Header{Name: blobPath(d.Digest), Mode: 0o644, Size: size}); err != nil {
		return descriptor{}, err
	}
	_, err = io.Copy(w.tar, in)
	return d, err
}

func (w *writer) has(digest string) bool {
	if w.seen == nil {
		w.seen = map[string]bool{}
	}
	had := w.seen[digest]
	w.seen[digest] = true
	return had
}

func (w *writer) image(image Image, layers []descriptor) (descriptor, error) {
	settings := map[string]any{"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	if len(image.Entrypoint) > 0 {
		settings["Entrypoint"] = image.Entrypoint
	}
	if image.User != "" {
		settings["User"] = image.User
	}
	var diffs []string
	for _, l := range layers {
		diffs = append(diffs, l.Digest)
	}
	config, err := json.Marshal(map[string]any{
		"architecture": "amd64", "os": "linux", "config": settings,
		"rootfs": map[string]any{"type": "layers", "diff_ids": diffs},
		// The name makes the digest its own: two names for one digest confuse the kubelet's view of containerd.
		"author": image.Name,
	})
	if err != nil {
		return descriptor{}, err
	}
	configBlob, err := w.blob(config, mediaConfig)
	if err != nil {
		return descriptor{}, err
	}
	manifest, err := json.Marshal(map[string]any{"schemaVersion": 2, "mediaType": mediaManifest, "config": configBlob, "layers": layers})
	if err != nil {
		return descriptor{}, err
	}
	d, err := w.blob(manifest, mediaManifest)
	d.Annotations = map[string]string{"io.containerd.image.name": image.Name}
	d.Platform = map[string]string{"architecture": "amd64", "os": "linux"}
	return d, err
}

func blobPath(digest string) string {
	return "blobs/sha256/" + strings.TrimPrefix(digest, "sha256:")
}

func writeFiles(out io.Writer, files []File) error {
	w := tar.NewWriter(out)
	dirs := map[string]bool{}
	for _, f := range files {
		name := strings.TrimPrefix(path.Clean(f.Path), "/")
		if err := writeDirs(w, path.Dir(name), dirs); err != nil {
			return err
		}
		if err := writeFile(w, f, name); err != nil {
			return fmt.Errorf("add %q: %w", f.Source, err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return err
	}
	return w.Close()
}

func writeDirs(w *tar.Writer, dir string, done map[string]bool) error {
	if dir == "." || done[dir] {
		return nil
	}
	if err := writeDirs(w, path.Dir(dir), done); err != nil {
		return err
	}
	done[dir] = true
	return w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: 0o755})
}

func writeFile(w *tar.Writer, f File, name string) error {
	in, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), Size: info.Size()}
	if f.Capability != "" {
		header.Format = tar.FormatPAX
		header.PAXRecords = map[string]string{"SCHILY.xattr.security.capability": string(f.Capability)}
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(w, in)
	return err
}
