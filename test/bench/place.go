package main

import (
	"os"
	"path/filepath"

	"github.com/vmstate/vmstate/pkg/objectstore"
	"github.com/vmstate/vmstate/pkg/objectstore/dirstore"
	"github.com/vmstate/vmstate/pkg/objectstore/s3store"
)

// place is where one engine's backups go: a directory, or a prefix of a bucket.
type place struct {
	// Dir holds the objects as files; of a bucket it is the server's own folder.
	Dir string
	S3  *s3store.Options
	// CAFile trusts the server.
	CAFile string
	server *server
}

// suffix of figures that were measured there.
func (p *place) suffix() string {
	if p.S3 != nil {
		return "tls_"
	}
	return ""
}

// store is what the engine sees.
func (p *place) store() (objectstore.Store, error) {
	if p.S3 != nil {
		return s3store.New(*p.S3)
	}
	return dirstore.New(p.Dir), os.MkdirAll(p.Dir, 0o700)
}

// empty makes the place as good as new.
func (p *place) empty() error {
	if err := os.RemoveAll(p.Dir); err != nil || p.S3 != nil {
		return err
	}
	return os.MkdirAll(p.Dir, 0o700)
}

// stored is what the place holds.
func (p *place) stored() (bytes int64, objects int, err error) {
	if _, err := os.Stat(p.Dir); os.IsNotExist(err) {
		return 0, 0, nil
	}
	return treeBytes(p.Dir)
}

// traffic since the last time that it was asked for.
func (p *place) traffic() traffic {
	if p.server == nil {
		return traffic{}
	}
	return p.server.take()
}

// placeFor makes a place for an engine.
func (b *bench) placeFor(kind, engine string) *place {
	if kind == "dir" {
		return &place{Dir: filepath.Join(b.work, "store-"+engine)}
	}
	opt := b.server.options
	opt.Prefix = engine
	return &place{Dir: filepath.Join(b.server.objects(), engine), S3: &opt, CAFile: b.server.caFile, server: b.server}
}
