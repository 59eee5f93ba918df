// Package backup decides the next step of a VMStateBackup.
//
// Plan looks at what exists and answers with records to write and actions to carry out. It
// reads no cluster, store or clock; package controllers does that for it. The first row that
// holds wins:
//
//	seen                                          done                                 Ready reason
//	being deleted, something of ours is left      remove it, in order                  CleaningUp
//	being deleted, nothing left                   finalizer off                        CleaningUp
//	being deleted with deletionPolicy Delete      wait for the store's maintenance     CleaningUp
//	an outcome is recorded, something is left     remove it, in order                  Stored, Kept or the failure's
//	an outcome is recorded, nothing left          finalizer off                        Stored, Kept or the failure's
//	done, snapshots kept that nobody asks about   remove them, then their record       Stored
//	spec.commit, its record not yet read          wait for the store's catalogue       Adopting, WaitingForStore
//	no finalizer                                  finalizer on                         Witnessing
//	a moment and a commit in the export's report  record the commit                    Stored
//	a moment, its export failed                   record the failure                   the report's, or ExportFailed
//	a moment, the export makes no progress        record the failure                   ExportFailed
//	a moment, the export Job runs                 record its progress                  Exporting, JobPending
//	a moment, asked for a turn, not let in        wait, however long                   WaitingForMover
//	a moment, snapshots ready, no turn yet        ask the store for one                WaitingForMover
//	a moment, snapshots ready                     clones and the export Job            Exporting
//	a moment, no store, snapshots and state kept  record the local copy                Kept
//	a moment, no store                            state claim and its Job              Keeping
//	no attempt open, remains of the last          remove them, in order                Binding
//	no attempt open, five were made               record the failure                   StateChanged, VMChanged
//	no attempt open, another backup cuts          wait                                 WaitingForTurn
//	no attempt open, a passing refusal            wait, at most waitLimit              Migrating, VMUnsettled, VolumeNotReady
//	no attempt open, a refusal                    record the failure                   the refusal's
//	no attempt open, the store is not writable    wait, at most waitLimit              WaitingForStore
//	no attempt open                               record machine, volumes, attempt     Witnessing
//	an attempt, not all prepared                  lock, documents, labels, witness     Witnessing, JobPending
//	an attempt, the machine differs               verdict Discarded                    Binding
//	an attempt, an older backup began its own     verdict Discarded                    Binding
//	an attempt, not prepared or read in time      record the failure                   WitnessFailed, SnapshotFailed
//	an attempt, first reading, an agent           record reading and freeze            Freezing
//	an attempt, freeze recorded                   ask for it                           Freezing
//	an attempt, first reading                     record reading and start of the cut  TakingSnapshot
//	a fence, the owner has paused the guest       record that, and start of the cut    TakingSnapshot
//	a fence, the witness could end it             record reading and pause             Pausing
//	a fence, pause recorded                       ask for it                           Pausing
//	a fence, KubeVirt does not pause              record the failure                   PauseFailed
//	the cut began, a snapshot is missing          make it                              TakingSnapshot
//	a fence, its deadline passed                  verdict Discarded, or the failure; let the guest go   Binding, PauseExceeded
//	a fence, handles and reading, still the same pause   record the end; let the guest go   Binding
//	a fence, handles and reading, another pause or none  verdict Discarded; let the guest go   Binding
//	the cut began, every handle is known          record its end; thaw                 Binding
//	the cut ended, readings differ                verdict StateChanged                 Binding
//	the cut ended, the machine differs            verdict Discarded                    Binding
//	the cut ended, nothing changed                verdict Bound, the moment            Exporting, Keeping
//
// Beside every row, a fence or a freeze that is recorded and due is released, before anything else is
// done; until it is, nothing of the attempt's witness is removed, which would release the guest in
// the manager's place. A guest that does not confirm it for thawLimit (frozenLimit where KubeVirt
// reports it as frozen) is not waited for any longer: that it is thawed is then said nowhere. A record and the effect that depends on it are two passes: a decision that writes
// records carries out nothing but a release.
//
// # The fence
//
// Where nothing cuts the disks at one instant (DisksFence), or the firmware state changed during three
// attempts (StateFence), the guest is paused for the cut: freeze if there is an agent, record the pause, ask
// for it, see it, make all snapshots, have the witness read, see that it is still the same pause, unpause,
// thaw. Handles and reading are looked at before the pause is, so that what is seen paused last was paused
// during both. A pause is named by the time in the instance's Paused condition, which has seconds: an owner
// who unpauses and pauses again within one is not noticed. Nor can an owner be told apart who pauses during
// a fence: that guest is unpaused.
//
// The guest runs again by the deadline, whether that was enough or not: by the manager, by its witness, or by
// the next manager's Releaser. Only a look at an instance that runs ends a fence, never an answer that is
// a conflict; after a pause that was never seen only one that no request can follow any more.
//
// # Freezing and pausing, and who may ask
//
// The record names the process that wrote it. That process asks within sendWindow; asking
// twice is harmless, as the guest stays frozen until the first request's time-out. Any other
// process, or a later time, means that nobody knows whether the request is under way: the
// attempt is discarded, and the guest is thawed until every such request must have ended.
package backup
