package build

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestKey changes one thing at a time: what can change a part's files must change its key, and nothing else may.
func TestKey(t *testing.T) {
	base := Part{Name: "tool", Module: "tools/tool", Sources: []string{"tools/tool", "shared"}, LDFlags: "-s",
		Commands: []Command{{"example.com/cmd/tool", "tool"}}}
	cases := map[string]struct {
		file    string // written before the second key is taken
		part    func(*Part)
		changes bool
	}{
		"Nothing":      {changes: false},
		"ModulePin":    {file: "tools/tool/go.mod", changes: true},
		"Checksums":    {file: "tools/tool/go.sum", changes: true},
		"Source":       {file: "shared/code.go", changes: true},
		"NewSource":    {file: "shared/more.go", changes: true},
		"Test":         {file: "shared/code_test.go", changes: false},
		"OtherModule":  {file: "tools/other/go.mod", changes: false},
		"Flags":        {part: func(p *Part) { p.LDFlags = "-s -w" }, changes: true},
		"Tags":         {part: func(p *Part) { p.Tags = "small" }, changes: true},
		"Static":       {part: func(p *Part) { p.Static = true }, changes: true},
		"MoreCommands": {part: func(p *Part) { p.Commands = append(p.Commands, Command{"example.com/cmd/more", "more"}) }, changes: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := &Builder{source: t.TempDir(), out: io.Discard}
			for _, file := range []string{"tools/tool/go.mod", "tools/tool/go.sum", "shared/code.go", "shared/code_test.go"} {
				write(t, filepath.Join(b.source, file), "before")
			}
			before := keyOf(t, b, base)
			if tc.file != "" {
				write(t, filepath.Join(b.source, tc.file), "after")
			}
			changed := base
			if tc.part != nil {
				tc.part(&changed)
			}
			if got := keyOf(t, b, changed) != before; got != tc.changes {
				t.Errorf("key changed = %v, want %v", got, tc.changes)
			}
		})
	}
}

// TestKeyFollowsNeeds takes the parts as they are: a new pin of KubeVirt must make new images.
func TestKeyFollowsNeeds(t *testing.T) {
	b := &Builder{source: t.TempDir(), out: io.Discard}
	for _, p := range Parts() {
		for _, name := range append([]string{p.Module + "/go.mod", p.Module + "/go.sum"}, p.Sources...) {
			write(t, filepath.Join(b.source, name), "before")
		}
	}
	images, err := b.find(Images)
	if err != nil {
		t.Fatal(err)
	}
	before := keyOf(t, b, images)
	write(t, filepath.Join(b.source, "tools/kubevirt/go.mod"), "after")
	if keyOf(t, b, images) == before {
		t.Error("the key of the images does not follow KubeVirt's pins")
	}
}

func TestSelectAddsNeeds(t *testing.T) {
	parts, err := Select(Images)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range parts {
		got = append(got, p.Name)
	}
	want := []string{KubeVirt, Rootfs, Images}
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Errorf("Select(%q) = %v, want %v", Images, got, want)
	}
}

func keyOf(t *testing.T, b *Builder, p Part) string {
	t.Helper()
	key, err := b.key(p)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// write writes a file; a name without an extension is a folder with one file in it.
func write(t *testing.T, name, content string) {
	t.Helper()
	if filepath.Ext(name) == "" {
		name = filepath.Join(name, "file.go")
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}
