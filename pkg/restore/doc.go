// Package restore decides the next step of a VMStateRestore.
//
// Plan looks at what exists and answers with effects and records. It reads no cluster,
// store or clock; package controllers does that for it. The first row that holds wins:
//
//	seen                                 done                                    Ready reason
//	ended, kept claims without a note    note on them until when they are kept   Restored, or the failure's
//	ended                                finalizer off                           Restored, DryRun, or the failure's
//	committed, machine gone              set the replaced volumes aside, give up SwitchFailed
//	committed, the record unreadable     nothing: a person must                  Switching
//	committed, not on its new claims     write the spec of the backup            Switching
//	committed, an instance made before   delete it                               Stopping
//	committed, old claim names resolve   delete the claims, keep their volumes   Switching
//	committed, starts denied             allow them                              Switching
//	committed, started                   wait until it runs                      Starting
//	started                              name the replaced volumes anew          CleaningUp
//	given up, something left             undo it, last step first                the failure's
//	given up, held, record unreadable    nothing more: a person must             the failure's
//	restore deleted                      give up                                 SwitchFailed
//	source not known                     look it up; Job for one in a store      Resolving
//	its Job asks for keys                wait for kubectl vmstate unlock         WaitingForUnlock
//	something in the way                 give up; status.findings lists all      PreflightFailed
//	dry run                              nothing                                 DryRun
//	claims missing                       make them                               Filling
//	claims not filled, no turn           ask the store for one, wait             WaitingForMover
//	claims not filled                    Job that fills and reads back           Filling
//	its Job asks for keys                wait for kubectl vmstate unlock         WaitingForUnlock
//	the Job makes no progress            nothing: a person is told               ImportStalled
//	filled, somebody uses the claims     give up                                 PreflightFailed
//	filled                               finalizer; record machine and claims    Switching
//	machine runs                         halt it, wait                           Stopping
//	starts allowed                       deny them (restoreInProgress)           Switching
//	spec on real claims                  one disk on a claim that is not there   Switching
//	old state labelled                   take its label off                      Switching
//	new claims the restore's             give them to the machine, label state   Switching
//	one labelled claim, ours             try the last write, record the commit   Switching
//
// What cannot be seen again (the machine's spec, run strategy and claims from before, that
// the switch was committed or given up) is recorded before any effect that depends on it,
// and a record has no effect in its own pass. Commit and failure exclude each other: both
// are one write of the same status, and whichever is first decides whether the next pass
// goes forward or back.
//
// Why the order is what it is: with no labelled claim KubeVirt makes a blank firmware
// state, with two it picks one at random, and it starts a machine from caches that are not
// ordered. What holds is that an instance whose ordinary claim does not exist stops before
// its firmware state is handled. So from before the first label moves until after the last,
// the machine's spec names a claim that does not exist.
//
// Before the start every claim is compared with the UID that was filled; starting paused to
// look at the launcher would tell no more, as the names hold the restore's UID and nobody
// else makes them. The names of the replaced claims stop resolving while starts are still
// denied, so that a tool which writes the old spec back gets a machine that does not start.
package restore
