package mover

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/vmstate/vmstate/pkg/mover/config"
	"github.com/vmstate/vmstate/pkg/repository"
)

// Resolved is one backup, opened with an identity and proven complete.
type Resolved struct {
	*repository.Commit
	// Documents are the files of the documents volume by name.
	Documents map[string][]byte
}

// Resolve finds the backup of c, and checks its signature and that everything it
// consists of is there, before anything is made for a restore.
func Resolve(ctx context.Context, e Env, c config.Resolve, rootKey []byte) (Resolved, error) {
	repo, err := e.open(ctx, rootKey, c.Unlock)
	if err != nil {
		return Resolved{}, fmt.Errorf("open repository: %w", err)
	}
	commit, err := find(ctx, repo, c)
	if err != nil {
		return Resolved{}, err
	}
	if err := repo.Check(ctx, commit); err != nil {
		return Resolved{}, fmt.Errorf("backup %q of %s/%s: %w", commit.Backup.Name, commit.VM.Namespace, commit.VM.Name, err)
	}
	if err := repo.openData(ctx, commit); err != nil {
		return Resolved{}, err
	}
	documents, err := e.documents(ctx, repo.Repository, commit)
	if err != nil {
		return Resolved{}, fmt.Errorf("documents of backup %q: %w", commit.Backup.Name, err)
	}
	return Resolved{Commit: commit, Documents: documents}, nil
}

func find(ctx context.Context, repo *reading, c config.Resolve) (*repository.Commit, error) {
	switch {
	case c.Commit != nil:
		return repo.commit(ctx, *c.Commit)
	case c.VMNamespace == "" || c.VMName == "":
		return nil, fmt.Errorf("%w: resolve needs a commit, or a virtual machine", ErrTask)
	case c.ID == "" || c.ID == "latest":
		return repo.Latest(ctx, c.VMNamespace, c.VMName)
	default:
		return findByID(ctx, repo.Repository, c)
	}
}

// findByID looks through the backups of one virtual machine. An ID that fits two is
// no answer; a damaged record of another backup is no obstacle.
func findByID(ctx context.Context, repo *repository.Repository, c config.Resolve) (*repository.Commit, error) {
	var found *repository.Commit
	var damaged error
	for commit, err := range repo.Commits(ctx) {
		if err != nil {
			damaged = err
			continue
		}
		if commit.VM.Namespace != c.VMNamespace || commit.VM.Name != c.VMName || !Matches(commit, c.ID) {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("%w: id %q fits %q and %q", ErrTask, c.ID, found.Key, commit.Key)
		}
		found = commit
	}
	switch {
	case found != nil:
		return found, nil
	case damaged != nil:
		return nil, fmt.Errorf("backup %q of %s/%s was not found, but not everything could be read: %w", c.ID, c.VMNamespace, c.VMName, damaged)
	default:
		return nil, fmt.Errorf("%w: %q of %s/%s", repository.ErrNoCommit, c.ID, c.VMNamespace, c.VMName)
	}
}

// minDigest is how many digits of a digest name a backup.
const minDigest = 8

// Matches tells whether id names commit: by its key, the last part of that, its
// sequence, or the first digits of its digest.
func Matches(commit *repository.Commit, id string) bool {
	return id == commit.Key || id == path.Base(commit.Key) || id == strconv.FormatUint(commit.Sequence, 10) ||
		len(id) >= minDigest && strings.HasPrefix(commit.Digest, id)
}

func (e Env) documents(ctx context.Context, repo *repository.Repository, commit *repository.Commit) (map[string][]byte, error) {
	opened, err := repo.ReadTree(ctx, commit, e.DocumentsVolume)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, entry := range opened.Entries() {
		if files[entry.Path], err = opened.Contents(ctx, entry.Path); err != nil {
			return nil, fmt.Errorf("read %q: %w", entry.Path, err)
		}
	}
	return files, nil
}
