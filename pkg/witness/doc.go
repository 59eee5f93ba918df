// Package witness decides the next step of a witness: the Job beside a virtual
// machine that reads its firmware state before and after the disks are cut, and
// that thaws the guest if nobody else does.
//
// Plan reads no cluster, file or clock; cmd/witness does. The first row that holds
// wins:
//
//	seen                                              done
//	a freeze past its deadline, not seen released     thaw, once a second, until an answer counts
//	an outcome, and no freeze that is held            exit
//	an outcome, and a freeze that is held             wait for its release or its deadline
//	backup gone, or the attempt has a verdict         fail: given up
//	no first reading, the machine does not run        read once
//	no first reading, but the cut began               fail: it would prove nothing
//	no first reading                                  read first
//	cut ended, and the manager recorded our reading   read second
//	cut ended with another first reading              fail: the readings do not belong together
//	none of these                                     wait
//
// A reading that is not in the report never happened: a witness that starts again
// continues from the report alone.
//
// # When a thaw counts
//
// An answer counts if it is a success, or says that the instance is gone. A freeze
// that was never confirmed can still be under way and land after a thaw; so without
// a confirmation only a thaw counts that was asked for at least InFlight after the
// freeze. 409 is an answer of a machine that cannot be thawed yet, never a success.
//
// # Whose clock
//
// The deadline is written by the manager's clock. A record that arrives while the
// witness watches is as old as the watch is late, so its length is counted from
// then by our own clock; one found at the start may be older, and the earlier of
// both is taken.
package witness
