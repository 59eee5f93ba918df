package repository

import "context"

// Books are live bytes by ordinal, of packs and of data keys: as they are when
// everything is counted, and as the tables of the commit say.
type Books struct {
	Packs, Keys map[uint64]int64
}

// CountLive counts what a commit reaches.
func (r *Repository) CountLive(ctx context.Context, c *Commit) (counted, listed Books, err error) {
	o, err := r.readCommit(ctx, c.CommitRef)
	if err != nil {
		return counted, listed, err
	}
	ck := r.newChecker(o)
	err = ck.all(ctx)
	return Books{ck.reached.packs, ck.reached.keys}, Books{ck.listed.packs, ck.listed.keys}, err
}
