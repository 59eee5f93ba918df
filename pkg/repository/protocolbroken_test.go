package repository_test

import (
	"bytes"
	"context"
	"iter"
	"strings"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/repository/layout"
)

// overwriting puts its commit over whatever is there.
type overwriting struct{ objectstore.Deleter }

func (o *overwriting) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if key[0] == 'c' {
		return o.Deleter.Replace(ctx, key, body)
	}
	return o.Deleter.Create(ctx, key, body)
}

// unmarked takes a dead writer's word for it that it will not commit.
type unmarked struct{ objectstore.Deleter }

func (u *unmarked) Create(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if key[0] == 'c' {
		return objectstore.Info{Key: key, Size: int64(len(body))}, nil
	}
	return u.Deleter.Create(ctx, key, body)
}

// commitsLast removes a commit when its packs are gone.
type commitsLast struct {
	objectstore.Deleter
	key  string
	body []byte
}

func (c *commitsLast) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if key[0] == 'c' {
		c.key, c.body = key, bytes.Clone(body)
		return objectstore.Info{Key: key, Size: int64(len(body))}, nil
	}
	return c.Deleter.Replace(ctx, key, body)
}

func (c *commitsLast) Delete(ctx context.Context, key string) error {
	if key[0] == 't' && c.body != nil {
		if _, err := c.Deleter.Replace(ctx, c.key, c.body); err != nil {
			return err
		}
		c.body = nil
	}
	return c.Deleter.Delete(ctx, key)
}

// fewSessions sees some of the sessions that were not there before, and no more.
type fewSessions struct {
	objectstore.Deleter
	base map[string]thing // what was there before
	sees int
}

func (f *fewSessions) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	return func(yield func(objectstore.Info, error) bool) {
		seen := 0
		for info, err := range f.Deleter.List(ctx, prefix) {
			if _, old := f.base[info.Key]; !old && prefix[0] == 's' {
				if seen++; seen > f.sees {
					continue
				}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// listsEarly lists runs and sessions before it reads what another remover has found to be of
// no use, and goes by these lists.
type listsEarly struct{ listsFirst }

func (l *listsEarly) List(ctx context.Context, prefix string) iter.Seq2[objectstore.Info, error] {
	if prefix == layout.CandidatesPrefix && l.lists == nil {
		if err := l.early(ctx); err != nil {
			return func(yield func(objectstore.Info, error) bool) { yield(objectstore.Info{}, err) }
		}
	}
	return l.listsFirst.List(ctx, prefix)
}

func (l *listsEarly) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	return l.Deleter.Replace(ctx, key, body)
}

func (l *listsEarly) early(ctx context.Context) error {
	for info, err := range l.Deleter.List(ctx, layout.Commits) {
		if err != nil {
			return err
		}
		return l.take(ctx, strings.Split(info.Key, "/")[1]+"/")
	}
	return nil
}

// tombstoneFirst takes the tombstone away before the commit.
type tombstoneFirst struct{ objectstore.Deleter }

func (f *tombstoneFirst) Replace(ctx context.Context, key string, body []byte) (objectstore.Info, error) {
	if name, ok := strings.CutPrefix(key, layout.Commits); ok {
		if err := f.Deleter.Delete(ctx, layout.Tombstones+name); err != nil {
			return objectstore.Info{}, err
		}
	}
	return f.Deleter.Replace(ctx, key, body)
}
