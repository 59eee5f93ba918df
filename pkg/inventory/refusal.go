package inventory

import "fmt"

// Refusal is one reason why a virtual machine cannot be captured (now).
type Refusal struct {
	Reason string
	// Volume that it is about, as status.volumes names it; "" if it is about the machine as a whole.
	Volume string
	// Object that is in the way, as kind/name.
	Object string
	// Message says what is in the way.
	Message string
	// Next says what to do about it.
	Next string
	// Passing says that it may go away without a change by a person.
	Passing bool
}

// String is what is in the way, and what to do.
func (r Refusal) String() string {
	if r.Next == "" {
		return r.Message
	}
	return r.Message + "; " + r.Next
}

// Moving says that the machine as a whole is on its way to another state: what is seen of it meanwhile may
// be right a moment later.
func (r Refusal) Moving() bool { return r.Passing && r.Volume == "" }

// refusals are all that was found.
type refusals []Refusal

func (f *refusals) add(found ...*Refusal) {
	for _, r := range found {
		if r != nil {
			*f = append(*f, *r)
		}
	}
}

func refuse(reason, object, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Object: object, Message: fmt.Sprintf(format, args...)}
}

func wait(reason, object, format string, args ...any) *Refusal {
	r := refuse(reason, object, format, args...)
	r.Passing = true
	return r
}

// next says what to do.
func (r *Refusal) next(format string, args ...any) *Refusal {
	r.Next = fmt.Sprintf(format, args...)
	return r
}

// of says which volume it is about.
func (r *Refusal) of(volume string) *Refusal {
	r.Volume = volume
	return r
}

// Objects, as kubectl names them.
func machine(name string) string  { return "virtualmachine/" + name }
func instance(name string) string { return "virtualmachineinstance/" + name }
func claim(name string) string    { return "persistentvolumeclaim/" + name }
func pod(name string) string      { return "pod/" + name }
