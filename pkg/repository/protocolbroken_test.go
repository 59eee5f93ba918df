package repository_test

import (
	"bytes"
	"context"

	"github.com/vmstate/vmstate/pkg/objectstore"
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
