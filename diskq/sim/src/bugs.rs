//! The deliberate bugs, each with a description. [`plant!`](diskq_log::plant) plants them by their names.

/// A bug's name and its description.
pub type Bug = (&'static str, &'static str);

/// Returns the bugs that the tests of `diskq` find.
pub fn of_the_disk() -> Vec<Bug> {
    bugs(OF_THE_DISK)
}

/// Returns the bugs that the simulation of the broker finds.
pub fn of_the_broker() -> Vec<Bug> {
    bugs(OF_THE_BROKER)
}

fn bugs(lines: &'static str) -> Vec<Bug> {
    let bugs = lines.lines().filter_map(|line| line.split_once(": "));
    let bugs = bugs.map(|(name, text)| (name.trim(), text.trim()));
    bugs.collect()
}

const OF_THE_DISK: &str = "
    DataPathBelieved:             a sync of the data path is believed after one that failed
    SyncfsErrorSwallowed:         a sync of the whole file system that failed counts
    SpillFailureNotFinal:         a spill whose sync of the directory has failed is only told
    SpillThroughCache:            the copy of a segment goes through the page cache, and nobody has it open
    CopyRemovesOriginal:          a torn copy replaces its original
    CheckpointCrcLeftOut:         the CRC of a checkpoint is not checked
    PinIgnored:                   a segment is recycled under an unfinished write
    DurableCheckpointOverwritten: the last durable checkpoint is overwritten
    FoundCheckpointBelieved:      a start believes a checkpoint that two processes have left unsynced
    TornEndsRecovery:             start-up stops at the first torn message
    VoidSyncBelieved:             a sync is believed that counted on a failed copy
    StateCrcLeftOut:              the CRC of a saved state is not checked
    LoadNotChecked:               a segment that is read back is not checked";

const OF_THE_BROKER: &str = "
    OkBeforeSync:            OK is sent before the sync
    NamesNotSynced:          the directories of a log are not synced
    LogNameNotSynced:        the directory that has the log is not synced
    NamesMarkTooEarly:       names count as synced that were made after the sync
    SpillNotSynced:          the copy of a synced segment is not synced
    CrcLeftOut:              the CRC of a message is not checked
    RecycledTooEarly:        a segment is recycled that a checkpoint names
    CheckpointsWrittenBack:  jobs write the file of checkpoints back as they have read it
    HeadAtTurnEnd:           the head of a new segment is written at the end of the turn
    SeqReused:               seqs are given again after a start
    DeferredForgotten:       start-up forgets deferrals
    PoisonIgnored:           a poisoned log takes messages
    FailedSyncRetried:       a failed sync is tried again and believed
    SyncCoversTooMuch:       a sync covers what was appended while it ran
    SyncTimerLost:           no sync is due after a time
    ChangeNotSynced:         an answered change waits for the topic's next message to be synced
    ChannelBeforeCheckpoint: a new channel is answered before its checkpoint
    InFlightNotRecorded:     a checkpoint forgets what is in flight
    GraceForgotten:          a channel that is made in the grace of its topic gets no earlier messages
    GraceForgetsDeferral:    the grace forgets deferrals
    GraceNotRecorded:        a checkpoint forgets the grace of its topic
    BoundsInGrace:           the bounds of unclaimed messages count in a grace, too
    BoundsBehindPause:       the bounds of unclaimed messages count behind a pause, although there are channels
    DeferredNotRecorded:     a checkpoint forgets what is deferred
    RequeueNotNoted:         a checkpoint forgets what is requeued while it is put together
    FinOfAnother:            a FIN of another client's message is accepted
    TouchShortens:           TOUCH shortens a timeout
    RequeueKeepsFlight:      a requeued message stays in flight
    TimeoutForgets:          a message that times out is forgotten
    TimerLost:               an earlier timeout of a channel sets no timer
    EmptyKeepsHolds:         emptying a channel keeps the holds of what is in flight
    UndoForgetsFlight:       an undo does not bring back what was in flight
    TopicUndoNotRecorded:    a checkpoint forgets the undo of a topic
    UndoNotRestored:         start-up forgets undos
    UnemptyBeforeCheckpoint: the use of an undo is answered before its checkpoint
    AttemptsNotCounted:      a redelivery does not count as an attempt
    DeadLetterBeforeSync:    a message is finished before its dead-letter topic is synced
    RefusedLetterForgotten:  a message that the dead-letter topic refuses is forgotten
    UncountedCounts:         a REQ counts as an attempt that must not count
    KeyBeforeStore:          the key of a message is remembered before the message is stored
    KeysAheadOfSync:         the file of keys names messages that are not synced
    BatchCopiesNotSeen:      the copies within a batch are not recognised by their content
    NewestKeysNotRead:       start-up reads no keys of the messages that the file of keys does not name
    NumberBeforeStore:       the number of a message counts as stored before the message is
    NumbersOfBatchForgotten: only the first number of a batch is remembered
    NumbersSavedTooEarly:    the numbers of messages are saved that are not synced
    NumbersNotHeld:          messages go whose numbers are not saved
    NumbersNotRead:          start-up does not read the numbers of messages
    DuplicateBeforeSync:     a duplicate is answered before its first copy is synced
    StopTakesForwards:       a shard that stops takes publishes of shards that still serve clients
    UpgradeBeforeAnswers:    an upgrade begins before earlier commands are answered
    PinsOfTheGone:           what a connection had not sent at its end stays pinned
    GrantsNeverExpire:       the grants of an auth server hold for ever
    DrainTakesPublishes:     a shard in a drain takes publishes of its clients
    StopSyncsNothing:        a graceful stop does not wait for the last syncs and checkpoints";
