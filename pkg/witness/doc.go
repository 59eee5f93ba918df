// Package witness decides the next step of a witness: the Job beside a virtual
// machine that reads its firmware state before and after the disks are cut, or while
// the guest is paused for the cut, and that lets the guest go if nobody else does.
//
// Plan reads no cluster, file or clock; cmd/witness does. The first row that holds
// wins:
//
//	seen                                              done
//	a pause past its deadline, not seen released      unpause, once a second, until an answer counts
//	a freeze past its deadline, no pause, not seen released   thaw, once a second, until an answer counts
//	an outcome, and no guest that is held             exit
//	an outcome, and a guest that is held              wait for its release or its deadline
//	backup gone, or the attempt has a verdict         fail: given up
//	a fence, not seen that it could be ended          try whether the guest could be unpaused
//	no first reading, the machine does not run        read once
//	no first reading, but the cut began               fail: it would prove nothing
//	no first reading                                  read first
//	a fence, the guest is paused, not read            read the paused guest's state
//	a fence, the cut ended, nothing read              fail: it would prove nothing
//	a fence, the cut ended                            done
//	cut ended, and the manager recorded our reading   read second
//	cut ended with another first reading              fail: the readings do not belong together
//	none of these                                     wait
//
// A reading that is not in the report never happened: a witness that starts again
// continues from the report alone.
//
// # When a release counts
//
// An answer counts if it is a success, or says that the instance is gone; of a pause
// also if the instance's status says that it runs. A request that was never confirmed
// can still be under way and land after the release; so without a confirmation only a
// release counts that was asked for at least InFlight after it. 409 is an answer of a
// machine that cannot be released yet, never a success. While a guest is paused its
// agent cannot thaw it, so the pause ends first, and by its deadline both do.
//
// # Whose clock
//
// The deadline is written by the manager's clock. A record that arrives while the
// witness watches is as old as the watch is late, so its length is counted from
// then by our own clock; one found at the start may be older, and the earlier of
// both is taken.
package witness
