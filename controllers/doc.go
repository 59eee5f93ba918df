// Package controllers reads and writes the cluster; it decides nothing.
//
// Every kind has the same loop:
//
//	observe   reads what one loop needs, live where a stale copy could do harm
//	plan      packages backup, restore and store: a pure function of what was seen
//	act       executor.run carries the actions out, in order, until one fails
//	report    one status patch with an optimistic lock, then Events on transitions
//
// The owner is read live at the start of every pass: a plan made from an old copy could make
// again what was cleaned up. Everything else may come from a cache where an old copy only means
// that the same pass happens once more: names are fixed by the owner's UID, and a child that
// exists already is met, not made twice.
//
// What cannot be observed again (a freeze asked for, a first reading, the virtual machine as
// captured) is recorded in the status before the effect that depends on it. A record and its
// effect are two passes: the first writes, the second reads what was written and acts.
//
// Who wakes whom is in watches.go. Nothing polls, except a wait with a deadline, which comes
// back when the deadline passes.
package controllers
