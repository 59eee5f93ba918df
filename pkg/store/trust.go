package store

import (
	"fmt"
	"slices"

	"github.com/vmstate/vmstate/api/v1alpha1"
	moverconfig "github.com/vmstate/vmstate/pkg/mover/config"
)

// forward is what is known of a store's signing keys after another look, which only adds; or what is wrong with what
// that look found. The mover has compared as well: what it reports is checked here since others can borrow its account.
func forward(was, seen *v1alpha1.TrustMark) (now *v1alpha1.TrustMark, wrong string) {
	switch {
	case was == nil || seen == nil:
		if seen == nil {
			return was, ""
		}
		return seen, ""
	case seen.KeyEpoch < was.KeyEpoch:
		return was, fmt.Sprintf("it shows keys of epoch %d, and those of epoch %d were seen", seen.KeyEpoch, was.KeyEpoch)
	case seen.KeyEpoch == was.KeyEpoch && seen.SigningKey != was.SigningKey:
		return was, fmt.Sprintf("the signing key of epoch %d is not the one that it was", was.KeyEpoch)
	}
	for _, w := range was.Distrust {
		at := slices.IndexFunc(seen.Distrust, func(s v1alpha1.DistrustMark) bool { return s.Epoch == w.Epoch })
		if at < 0 || seen.Distrust[at].Number < w.Number || seen.Distrust[at].Number == w.Number && seen.Distrust[at].Digest != w.Digest {
			return was, fmt.Sprintf("what of epoch %d is still believed was said in word %d, which it does not show", w.Epoch, w.Number)
		}
	}
	return seen, ""
}

// setBack says that the bucket does not show what was seen of the signing keys, and what can be done.
func setBack(in Observed, d Decision, message string) Decision {
	return unusable(in, d, v1alpha1.ReasonKeysSetBack, "nothing is read from the bucket or written to it: somebody who controls it has removed or replaced "+
		"what says whose signatures count: "+message+". Bring the object back (an older version, a copy of the bucket); for a distrust, "+
		"kubectl vmstate distrust says it again; else create another VMStateStore with another prefix. Backups up to a digest that you know can be read with kubectl vmstate restore-files")
}

// Known is what this cluster knows of the signing keys of a store, whatever the bucket shows: the latest epoch with its
// key, the latest words on distrusted ones, and those whose key it has taken back.
func Known(s *v1alpha1.VMStateStore, c *moverconfig.Store) {
	c.KeyEpoch = uint32(s.Status.KeyEpoch)
	if t := s.Status.Trust; t != nil {
		c.KeyEpoch, c.EpochKey = uint32(t.KeyEpoch), t.SigningKey
		for _, w := range t.Distrust {
			c.Words = append(c.Words, moverconfig.Word{Epoch: uint32(w.Epoch), Number: int(w.Number), Digest: w.Digest})
		}
	}
	for _, d := range s.Spec.Distrust {
		if d.Epoch < int64(c.KeyEpoch) {
			c.Distrusted = append(c.Distrusted, uint32(d.Epoch))
		}
	}
}
