// Package inventory turns the objects of a virtual machine into the list of what must be
// captured, and into the reasons why it cannot be.
//
// Of looks at what was read and answers with an Inventory and every Refusal that it finds. A passing refusal
// goes away by itself; the others need a person:
//
//	seen                                                refusal           passing
//	no such VM; nothing else is looked at               VMNotFound
//	the VM is being deleted; nothing else is looked at  VMDeleting
//	its instancetype or preference cannot be applied    SpecIncomplete
//	a migration of its instance is not over             Migrating         yes
//	volumes are being moved, or another tool snapshots  VMUnsettled       yes
//	an instance that the VM did not make                VMUnsettled       yes
//	the instance is starting, stopping or crashing      VMUnsettled       yes
//	a disk marked shareable                             VolumeShared
//	a disk or the state that another pod may write      VolumeShared      yes
//	a LUN, a host disk, a virtiofs folder               VolumeUnsupported
//	a disk plugged into the instance alone              VolumeUnsupported
//	a disk on another claim than the spec asks for      VMUnsettled       yes
//	a claim that does not exist or is being deleted     VolumeNotReady
//	a claim that is not bound, an attachment under way  VolumeNotReady    yes
//	no disk with a claim                                NoVolumes
//	several claims with the label of its state          StateAmbiguous
//	the claim that the launcher mounts is being deleted VolumeNotReady
//	a migration's claim for the state in use, or left   Migrating         yes
//	label, launcher and spec disagree about the state   StateAmbiguous
//	TPM or EFI persistent, and no claim for them        StateMissing
//	the state on a Block claim                          StateUnsupported
//	the node's or the launcher's labels are unknown     VMUnsettled       yes
//
// A machine that starts, stops or moves may have no claim for its state yet, or two: while it does, nothing is
// said of them. What else is found meanwhile may be right a moment later (Refusal.Moving).
//
// What persists is never decided by the VM's template alone: a preference can ask for it
// (kubevirt/kubevirt#17564). The instance decides while it runs, the expanded spec otherwise.
package inventory
