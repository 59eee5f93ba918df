package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vmstate/vmstate/api/v1alpha1"
	"github.com/vmstate/vmstate/pkg/repository"
	"github.com/vmstate/vmstate/pkg/repository/blockfile"
	"github.com/vmstate/vmstate/pkg/repository/tree"
)

const aboutRestoreFiles = `Brings a backup out of a bucket or a directory as files, with an identity and nothing else:

  DIR/<volume>.img   every disk, raw and sparse
  DIR/state/         the firmware state: swtpm/ is the vTPM, nvram/ the EFI variables
  DIR/spec/          the virtual machine and what belongs to it, as JSON

The backup is proven complete before anything is written. Every byte is checked on its way and read back; the files
have their names only when all of them are good. DIR must not exist, or be empty.

With --onto VOLUME=PATH a disk goes onto a file or block device that is there, in place of DIR/<volume>.img: what it
holds is compared first, and only what differs is fetched and written. A file is cut or grown to the size of the disk. Of
a larger device the rest keeps what it held, which is said: a partition table's second copy there is not this disk's. Stopped half way, PATH is neither the old disk nor the new one: the same command
goes on where it stopped.

Nothing in the store tells that it is being read from here: a backup that is removed meanwhile stays for as long as the
maintenance of the store leaves what is of no use (24 hours, unless the VMStateStore says otherwise). If it goes all the
same, the command fails and says what is missing.`

// saysWhat refuses a command that does not say which backup goes where, of those that bring one out as files.
func (a *app) saysWhat(vm, id, output string) error {
	switch {
	case !a.store.given():
		return usagef("say with --bucket or --dir where the backup is")
	case output == "":
		return usagef("say with --output which directory the files go to")
	case vm == "" && id == "latest":
		return usagef("say with --vm whose newest backup is meant, or give a --commit")
	}
	return nil
}

func (a *app) restoreFilesCommand() *cobra.Command {
	var vm, id, output string
	var onto []string
	cmd := &cobra.Command{
		Use:   "restore-files --vm NAMESPACE/NAME --output DIR",
		Short: "Bring a backup out of a bucket or directory as files, without a cluster",
		Long:  aboutRestoreFiles,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.saysWhat(vm, id, output); err != nil {
				return err
			}
			places, err := parseOnto(onto)
			if err != nil {
				return err
			}
			return a.restoreFiles(cmd.Context(), vm, id, &fileRestore{output: output}, places)
		},
	}
	cmd.Flags().StringVar(&vm, "vm", "", "namespace/name of the virtual machine as it was backed up")
	cmd.Flags().StringVar(&id, "commit", "latest", "id of the backup, as list prints it")
	cmd.Flags().StringVar(&output, "output", "", "directory for the files")
	cmd.Flags().StringArrayVar(&onto, "onto", nil, "VOLUME=PATH: bring this disk onto an existing file or device, sending only what differs; may be repeated")
	a.store.register(cmd.Flags())
	return cmd
}

// partialSuffix of a disk image that is not proven yet.
const partialSuffix = ".partial"

// fileRestore is one backup on its way into a directory.
type fileRestore struct {
	repo     *repository.Repository
	commit   *repository.Commit
	output   string
	onto     map[string]*existing // disks that go onto something that is there
	progress *bar
	// note tells a person something on the way.
	note func(format string, args ...any)
	// before are bytes of the disks that are done, of total.
	before, total int64
}

func (a *app) restoreFiles(ctx context.Context, vm, id string, r *fileRestore, onto map[string]string) error {
	repo, err := a.store.open(ctx)
	if err != nil {
		return err
	}
	c, err := find(ctx, repo, vm, id)
	if err != nil {
		return err
	}
	if err := checkOnto(c, onto); err != nil {
		return err
	}
	if err := repo.Check(ctx, c); err != nil {
		return fmt.Errorf("backup %s is not whole: %w", shortID(c.Digest), err)
	}
	if err := makeEmpty(r.output); err != nil {
		return err
	}
	r.repo, r.commit, r.progress, r.note = repo, c, newBar(a.err), a.note
	if r.onto, err = openOnto(c, onto); err == nil {
		err = r.run(ctx)
		err = errors.Join(err, closeOnto(r.onto))
	}
	r.progress.end()
	if err != nil {
		// What is not whole is of no use, and looks as if it were.
		return errors.Join(fmt.Errorf("restore files of backup %s: %w", shortID(c.Digest), err), empty(r.output))
	}
	return a.printView(viewOfCommit(c))
}

// makeEmpty makes a directory, or accepts one that holds nothing.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read directory: %w", err)
	}
	if len(entries) > 0 {
		return usagef("directory %q is not empty (%s is in it)", dir, entries[0].Name())
	}
	return nil
}

// empty removes what is in a directory that was empty before.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func (r *fileRestore) run(ctx context.Context) error {
	var disks []string
	for _, v := range r.commit.Volumes {
		if v.Kind == repository.KindBlock {
			// Whoever made the store chose the name; it must not lead out of the directory.
			if v.Name == "" || v.Name != filepath.Base(v.Name) {
				return fmt.Errorf("%w: volume name %q is not a file name", errDamaged, v.Name)
			}
			r.total += v.Size
			if r.onto[v.Name] == nil {
				disks = append(disks, v.Name)
			}
		}
	}
	for _, v := range r.commit.Volumes {
		if v.Kind != repository.KindTree {
			continue
		}
		folder := "state"
		if v.Role == string(v1alpha1.RoleSpec) {
			folder = "spec"
		}
		if err := r.tree(ctx, v.Name, filepath.Join(r.output, folder)); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	for _, v := range r.commit.Volumes {
		if v.Kind != repository.KindBlock {
			continue
		}
		if err := r.disk(ctx, v); err != nil {
			return fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	for _, name := range disks {
		path := r.image(name)
		if err := os.Rename(path+partialSuffix, path); err != nil {
			return err
		}
	}
	return nil
}

func (r *fileRestore) image(volume string) string { return filepath.Join(r.output, volume+".img") }

func (r *fileRestore) disk(ctx context.Context, v repository.VolumeResult) error {
	spec := repository.RestoreSpec{Volume: v.Name, Progress: func(p repository.RestoreProgress) {
		// Half of the way is writing, half is reading back.
		r.progress.show(reading{step: "Restoring " + v.Name, done: r.before + (p.Done+p.Verified)/2, total: r.total, extra: "fetched " + size(p.Fetched)})
	}}
	if there := r.onto[v.Name]; there != nil {
		spec.Target, spec.InPlace = there, true
		out, err := r.repo.RestoreBlock(ctx, r.commit, spec)
		r.before += v.Size
		r.progress.end()
		if err == nil {
			r.note("%s: %s was in place, %s written, %s fetched%s", there.path, size(out.KeptBytes), size(out.DataBytes), size(out.FetchedByte), there.rest())
		}
		return err
	}
	target, err := blockfile.Create(r.image(v.Name)+partialSuffix, v.Size)
	if err != nil {
		return err
	}
	spec.Target, spec.Fresh = target, true
	_, err = r.repo.RestoreBlock(ctx, r.commit, spec)
	r.before += v.Size
	return errors.Join(err, target.Close())
}

// tree writes a volume of files. Owners are kept where that is allowed, which is for root; the rest is kept for all.
func (r *fileRestore) tree(ctx context.Context, volume, folder string) error {
	opened, err := r.repo.ReadTree(ctx, r.commit, volume)
	if err != nil {
		return err
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder) // whatever the records say, nothing is written outside of it
	if err != nil {
		return err
	}
	defer root.Close()
	entries := opened.Entries()
	for _, e := range entries {
		if err := writeEntry(ctx, root, opened, e); err != nil {
			return fmt.Errorf("write %q: %w", e.Path, err)
		}
	}
	// A recorded mode may forbid writing into a directory, so directories get theirs last.
	for i := len(entries) - 1; i >= 0; i-- {
		if err := finishEntry(root, entries[i]); err != nil {
			return fmt.Errorf("write %q: %w", entries[i].Path, err)
		}
	}
	return nil
}

func writeEntry(ctx context.Context, root *os.Root, from repository.OpenTree, e tree.Entry) error {
	switch {
	case e.Type == tree.TypeDir && e.Path == ".":
		return nil
	case e.Type == tree.TypeDir:
		return root.Mkdir(e.Path, 0o700)
	case e.Type == tree.TypeSymlink:
		return root.Symlink(e.Target, e.Path)
	}
	content, err := from.Contents(ctx, e.Path)
	if err != nil {
		return err
	}
	f, err := root.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func finishEntry(root *os.Root, e tree.Entry) error {
	if e.Type == tree.TypeSymlink {
		return nil
	}
	if os.Geteuid() == 0 {
		if err := root.Chown(e.Path, int(e.UID), int(e.GID)); err != nil {
			return err
		}
	}
	if err := root.Chmod(e.Path, mode(e)); err != nil {
		return err
	}
	if e.Type == tree.TypeFile {
		return root.Chtimes(e.Path, e.ModTime, e.ModTime)
	}
	return nil
}

// mode turns the bits of st_mode into Go's.
func mode(e tree.Entry) fs.FileMode {
	m := fs.FileMode(e.Mode & 0o777)
	for bit, flag := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if e.Mode&bit != 0 {
			m |= flag
		}
	}
	return m
}
