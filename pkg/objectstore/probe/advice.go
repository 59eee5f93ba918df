package probe

import (
	"context"
	"errors"
	"strings"

	"github.com/vmstate/vmstate/pkg/objectstore"
)

// advice is what to do about an error, for a person.
func (p *probe) advice(err error) string {
	for _, a := range []struct {
		kind error
		text string
	}{
		{ErrNoConditionalWrites, "The store must support PUT with If-None-Match: * and keep one copy of the truth; use a server version that does (most do since 2024), and no multi-site endpoint"},
		{objectstore.ErrNoLock, "Object lock is switched on when a bucket is made, by some servers later too: make one that has it, or take spec.s3.objectLock away"},
		{objectstore.ErrNoBucket, "Create the bucket, or correct its name"},
		{objectstore.ErrClockSkew, "Set the clock (NTP) of the store or of the nodes" + p.skew()},
		{objectstore.ErrDenied, "Check access key and secret key, the region, and that they allow to get, put and list objects of this bucket and prefix"},
		{objectstore.ErrFull, "Make room in the store, or raise the quota"},
		{objectstore.ErrUnreachable, "Check the address, the network policy between this namespace and the store, and its certificate (caBundleConfigMapRef for one of your own)"},
		{objectstore.ErrCorrupted, "Something between here and the store, or the store itself, changes data: do not use it before that is found"},
		{context.DeadlineExceeded, "The store answers too slowly"},
	} {
		if errors.Is(err, a.kind) {
			return a.text
		}
	}
	return "Look at the store's own log"
}

func (p *probe) skew() string {
	if skew, known := p.target.Skew(); known {
		return "; the store's is " + ahead(skew)
	}
	return ""
}

// Summary is all that is not OK, in one line; empty if all is.
func (r Result) Summary() string {
	var parts []string
	for _, f := range r.Findings {
		if f.Outcome != OK {
			parts = append(parts, f.Check+": "+f.Message)
		}
	}
	return strings.Join(parts, "; ")
}
