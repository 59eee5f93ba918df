package repository

import (
	"runtime"
	"sync"

	"github.com/vmstate/vmstate/pkg/repository/frame"
	"github.com/vmstate/vmstate/pkg/repository/index"
)

// framer gathers new units into frames, has them compressed and sealed by several
// goroutines, and gives them back in order. It is used from one goroutine.
type framer struct {
	sealers []*frame.Sealer
	jobs    chan *frameJob
	free    []*frameJob
	queue   []*frameJob // submitted, oldest first
	current *frameJob
	counter uint64 // of the frame being gathered, or the next one
	placed  placed
	known   known
	wg      sync.WaitGroup
}

// frameJob is one frame on its way. Its buffers are used again.
type frameJob struct {
	counter       uint64
	plain, sealed []byte
	units         int
	raw           bool
	done          chan struct{}
}

const maxSealers = 4

func (b *Backup) newFramer(secret [32]byte) error {
	f := &framer{}
	n := min(runtime.GOMAXPROCS(0), maxSealers)
	binding := frame.Binding{Repository: b.repo.id, VM: b.vm, Origin: b.origin}
	for range n {
		s, err := frame.NewSealer(secret, binding)
		if err != nil {
			return err
		}
		f.sealers = append(f.sealers, s)
	}
	for range 2*n + 1 {
		f.free = append(f.free, &frameJob{done: make(chan struct{}, 1)})
	}
	b.frames = f
	return nil
}

func (f *framer) start() {
	f.jobs = make(chan *frameJob, len(f.free))
	for _, s := range f.sealers {
		f.wg.Go(func() {
			for j := range f.jobs {
				j.sealed, j.raw = s.Seal(j.sealed[:0], j.counter, j.plain)
				j.done <- struct{}{}
			}
		})
	}
}

func (f *framer) close() {
	close(f.jobs)
	f.wg.Wait()
}

// busy reports whether a new frame must wait for the oldest one.
func (f *framer) busy() bool { return f.current == nil && len(f.free) == 0 }

// add appends a unit to the current frame, whose counter and slot it returns. The
// frame is submitted once another whole unit would not fit.
func (f *framer) add(unit []byte, unitBytes int) (counter uint64, slot uint8) {
	if f.current == nil {
		f.current = f.free[len(f.free)-1]
		f.free = f.free[:len(f.free)-1]
		f.current.counter, f.current.units, f.current.plain = f.counter, 0, f.current.plain[:0]
		if f.current.plain == nil {
			f.current.plain = make([]byte, 0, frame.MaxPlain)
			f.current.sealed = make([]byte, 0, frame.MaxSealed)
		}
	}
	j := f.current
	counter, slot = j.counter, uint8(j.units)
	j.plain = append(j.plain, unit...)
	j.units++
	if len(j.plain)+unitBytes > frame.MaxPlain {
		f.submit()
	}
	return counter, slot
}

// submit sends off the current frame, if it holds anything.
func (f *framer) submit() {
	if f.current == nil {
		return
	}
	f.queue = append(f.queue, f.current)
	f.jobs <- f.current
	f.current = nil
	f.counter++
}

// oldest waits for the oldest frame and takes it from the queue; nil if there is
// none. The caller gives it back by release.
func (f *framer) oldest() *frameJob {
	if len(f.queue) == 0 {
		return nil
	}
	j := f.queue[0]
	f.queue = f.queue[:copy(f.queue, f.queue[1:])]
	<-j.done
	return j
}

func (f *framer) release(j *frameJob) { f.free = append(f.free, j) }

// frameWindow is how many of the latest frames a unit may be found in again: 16 GiB.
const frameWindow = 1 << 14

// placed keeps where the latest frames are.
type placed struct {
	ring []index.Frame
	next uint64 // frames before next are placed
}

func (p *placed) add(f index.Frame) {
	if len(p.ring) < frameWindow {
		p.ring = append(p.ring, f)
	} else {
		p.ring[f.Counter%frameWindow] = f
	}
	p.next = f.Counter + 1
}

func (p *placed) get(counter uint64) *index.Frame { return &p.ring[counter%frameWindow] }

// find returns where this attempt has stored a unit with that id, if that is known
// and recent enough: a leaf under construction must still find the frame when it is
// finished, and the queue of those spans far less than half the window.
func (f *framer) find(id index.Tag, unitBytes int) (knownUnit, bool) {
	u, ok := f.known.find(id)
	return u, ok && int(u.unit) == unitBytes && u.counter+frameWindow/2 > f.counter
}
