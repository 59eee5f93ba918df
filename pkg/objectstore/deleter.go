package objectstore

import "context"

// Deleter is a Store as those see it who may also take away: garbage collection, with a
// credential of its own. Who writes and reads backups is given a plain Store.
type Deleter interface {
	Store

	// Replace stores body under key whatever is there, in one step: at no time is the
	// key free or the object half of each. What was there stays as an older version
	// where the bucket keeps versions. Otherwise it is as Create.
	Replace(ctx context.Context, key string, body []byte) (Info, error)
}
