"""Every exception Detent raises, in one tree.

    DetentError
    ├── IllegalTransition      a move that the lifecycle table does not allow
    ├── AmbiguousId            the beginning of an id that several jobs have (give more of it)
    ├── AppError               a program of yours that no jobs can be run from
    │   ├── AppAmbiguous       several apps in it (say which: module:name)
    │   ├── AppBroken          it cannot be imported; its own traceback is in the message
    │   ├── AppMissing         no app in it, or not of that name
    │   └── AppNotFound        no such file or module
    ├── BadMachine             a lifecycle table that contradicts itself (found at import)
    ├── BadHistory             a history that no legal life could have produced
    ├── BadProof               an inclusion proof that does not lead to the sealed head
    ├── BadPolicy              a retry policy or workflow shape with an impossible value
    ├── BadArguments           arguments that do not fit the signature of their job
    ├── BadOption              an option of a job that cannot be, or not beside another one
    ├── BadResult              a result that is no JSON, or not of the promised type
    ├── BadSignature           a function that cannot be a job as it is written
    ├── InsideLoop             a synchronous call where an event loop runs (await its twin)
    ├── InstanceLost           a worker that was declared lost (start it anew, under another name)
    ├── JobCancelled           the job whose result was asked for was called off
    ├── JobExists              a unique job, or another request under the same key, is in the way
    ├── JobFailed              the job whose result was asked for failed for good
    ├── NotPortable            a handle that was to be pickled (keep its id)
    ├── NotQuiet               a worker that still had jobs when it was to be quiet (it goes on)
    ├── ResultTimeout          the job has not ended in time (it goes on)
    ├── EngineInUse            another program is connected under the id of this engine (try again)
    ├── EngineRefused          the server does not let an engine in, or does not take what it says
    ├── PackageMissing         something that not everybody needs is not installed
    ├── OpenToAll              a server that others could reach, in front of a store without keys
    ├── UnknownKey             there is no such API key in this store
    ├── UnknownJob             there is no such job in this store
    ├── UnknownWorkflow        there is no such workflow in this store
    ├── WorkflowAborted        the workflow whose result was asked for was called off
    ├── WorkflowFailed         the workflow whose result was asked for failed
    ├── LimitError             more of something than one call or one job may have
    │   ├── NameTooLong        a name, tag or key with too many characters, or none
    │   ├── NumberTooLarge     a number that would be read as infinite
    │   ├── PayloadTooDeep     arguments nested too deeply
    │   ├── PayloadTooLarge    arguments with too many bytes
    │   ├── ResultTooLarge     a result or checkpoint with too many bytes
    │   └── TooMany            too many jobs in one call, or too many tags on one job
    ├── SecretError            a secret that cannot be locked or unlocked
    │   ├── BadSecretKey       a key, or the file it is in, that cannot be used
    │   ├── NoSecretKey        no key to lock a secret with (set DETENT_SECRET_KEY)
    │   └── SecretUnreadable   a locked value that was changed, or whose key is not here
    ├── ProcessError           a process that cannot be started, or cannot be spoken to
    │   ├── CannotListen       a server whose port is taken, or whose address is not of this machine
    │   ├── ChannelBroken      what came through a channel is no message, or too much
    │   ├── CommandNotFound    there is no such program, or no such working directory
    │   ├── CommandRefused     a file that may not be executed, or cannot be
    │   ├── ContainerError     the runtime of the container did not do what it was asked
    │   ├── ForkFailed         no room for another process (try again)
    │   ├── PoolBroken         a pool process that did not get as far as running jobs
    │   └── TooManyFiles       no room for another open file (raise the limit, try again)
    ├── SupervisorError        a supervisor that cannot do what it was asked
    │   ├── AlreadyStarted     a second start of what runs, or of what has ended
    │   ├── BadJournal         a journal that cannot be read or written
    │   ├── BadSpec            a slot with a value that cannot work
    │   ├── JournalLocked      another supervisor uses that directory
    │   ├── NotStarted         a supervisor that does not run, or not by itself
    │   ├── NotSuspendable     a worker that cannot go quiet and come back
    │   ├── SlotExists         a slot of that name is there already
    │   ├── StartFailed        a worker that could not be started
    │   ├── SuspendTimeout     it did not go quiet in time, and works on (try again)
    │   ├── TooManyRestarts    a supervisor that gave up
    │   ├── UnknownSlot        no slot of that name
    │   ├── UnknownWorker      no worker of that name, or none that is known any more
    │   └── WorkerSilent       a worker's supervisor did not do what it was told, or did not answer
    ├── WebhookError           a webhook that cannot be, or that cannot be delivered to
    │   ├── AddressRefused     an address that we do not connect to (private, local, no TLS, ...)
    │   ├── BadWebhook         a webhook with an impossible address, event or secret
    │   ├── PostFailed         nobody answered, or no answer that we understand (try again)
    │   └── UnknownWebhook     no webhook, or no delivery, of that id
    ├── BadSchedule            a schedule that says no times, or no job that could be made
    ├── ScheduleExists         a schedule of that name is there already (edit it)
    ├── UnknownSchedule        no schedule of that name
    ├── UnknownType            no program of that type has worked on this store
    └── StoreError             a store that cannot do what it was asked
        ├── BadName            a name that no database can keep (leave NUL and half characters out)
        ├── BadUrl             an address that names no store
        ├── BatchTooLarge      more in one call than a store does at once (split it)
        ├── ClockAhead         an instant that lies in the store's future
        ├── NoStore            a process that works for a server, and has no database itself
        ├── ReadTooLong        a question that took too long to answer (ask for less)
        ├── SchemaAhead        tables that are newer than this code
        ├── SchemaBehind       tables that are older than this code and must be migrated
        ├── ServerAway         the server that keeps the jobs cannot be reached (try again)
        ├── ServerRefused      that server does not let us in, or does not do that
        ├── StoreBroken        an open store that must not go on (open it again)
        ├── StoreBusy          somebody else had the lock for too long (try again)
        ├── StoreClosed        a call before the store was opened or after it was closed
        ├── StoreCorrupt       the database contradicts itself
        ├── StoreFull          no space is left (try again when there is)
        ├── StoreOpen          a store that was opened already (open another one)
        ├── StoreRefused       the database does not let us in
        ├── StoreUnavailable   the database cannot be reached (try again)
        ├── UnfitUnit          a unit that is more than new jobs, inside somebody's own transaction
        ├── UnknownConnection  somebody's own connection, of a kind that we do not know
        ├── Unstorable         a decision that the database refuses: a fault of ours (report it)
        ├── UnsupportedStore   a database, version or file system that cannot be trusted
        └── WrongIsolation     a transaction that would not see who was faster

Each carries a stable `code`, whether trying again can help, and its facts as fields, so that no
caller ever has to read the message. The message says what happened, why, and what to do.
"""

from __future__ import annotations

from detent.errors.jobs import (
    AddressRefused,
    AmbiguousId,
    AppAmbiguous,
    AppBroken,
    AppError,
    AppMissing,
    AppNotFound,
    BadArguments,
    BadOption,
    BadResult,
    BadSchedule,
    BadSecretKey,
    BadSignature,
    BadWebhook,
    InsideLoop,
    JobCancelled,
    JobExists,
    JobFailed,
    LimitError,
    NameTooLong,
    NoSecretKey,
    NotPortable,
    NumberTooLarge,
    OpenToAll,
    PayloadTooDeep,
    PayloadTooLarge,
    PostFailed,
    ResultTimeout,
    ResultTooLarge,
    ScheduleExists,
    SecretError,
    SecretUnreadable,
    TooMany,
    UnknownJob,
    UnknownKey,
    UnknownSchedule,
    UnknownType,
    UnknownWebhook,
    UnknownWorkflow,
    WebhookError,
    WorkflowAborted,
    WorkflowFailed,
)
from detent.errors.root import (
    BadHistory,
    BadMachine,
    BadPolicy,
    BadProof,
    DetentError,
    IllegalTransition,
)
from detent.errors.stores import (
    BadName,
    BadUrl,
    BatchTooLarge,
    ClockAhead,
    NoStore,
    ReadTooLong,
    SchemaAhead,
    SchemaBehind,
    ServerAway,
    ServerRefused,
    StoreBroken,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreOpen,
    StoreRefused,
    StoreUnavailable,
    UnfitUnit,
    UnknownConnection,
    Unstorable,
    UnsupportedStore,
    WrongIsolation,
)
from detent.errors.workers import (
    AlreadyStarted,
    BadJournal,
    BadSpec,
    CannotListen,
    ChannelBroken,
    CommandNotFound,
    CommandRefused,
    ContainerError,
    EngineInUse,
    EngineRefused,
    ForkFailed,
    InstanceLost,
    JournalLocked,
    NotQuiet,
    NotStarted,
    NotSuspendable,
    PackageMissing,
    PoolBroken,
    ProcessError,
    SlotExists,
    StartFailed,
    SupervisorError,
    SuspendTimeout,
    TooManyFiles,
    TooManyRestarts,
    UnknownSlot,
    UnknownWorker,
    WorkerSilent,
)

__all__ = [
    "AddressRefused",
    "AlreadyStarted",
    "AmbiguousId",
    "AppAmbiguous",
    "AppBroken",
    "AppError",
    "AppMissing",
    "AppNotFound",
    "BadArguments",
    "BadHistory",
    "BadJournal",
    "BadMachine",
    "BadName",
    "BadOption",
    "BadPolicy",
    "BadProof",
    "BadResult",
    "BadSchedule",
    "BadSecretKey",
    "BadSignature",
    "BadSpec",
    "BadUrl",
    "BadWebhook",
    "BatchTooLarge",
    "CannotListen",
    "ChannelBroken",
    "ClockAhead",
    "CommandNotFound",
    "CommandRefused",
    "ContainerError",
    "DetentError",
    "EngineInUse",
    "EngineRefused",
    "ForkFailed",
    "IllegalTransition",
    "InsideLoop",
    "InstanceLost",
    "JobCancelled",
    "JobExists",
    "JobFailed",
    "JournalLocked",
    "LimitError",
    "NameTooLong",
    "NoSecretKey",
    "NoStore",
    "NotPortable",
    "NotQuiet",
    "NotStarted",
    "NotSuspendable",
    "NumberTooLarge",
    "OpenToAll",
    "PackageMissing",
    "PayloadTooDeep",
    "PayloadTooLarge",
    "PoolBroken",
    "PostFailed",
    "ProcessError",
    "ReadTooLong",
    "ResultTimeout",
    "ResultTooLarge",
    "ScheduleExists",
    "SchemaAhead",
    "SchemaBehind",
    "SecretError",
    "SecretUnreadable",
    "ServerAway",
    "ServerRefused",
    "SlotExists",
    "StartFailed",
    "StoreBroken",
    "StoreBusy",
    "StoreClosed",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreOpen",
    "StoreRefused",
    "StoreUnavailable",
    "SupervisorError",
    "SuspendTimeout",
    "TooMany",
    "TooManyFiles",
    "TooManyRestarts",
    "UnfitUnit",
    "UnknownConnection",
    "UnknownJob",
    "UnknownKey",
    "UnknownSchedule",
    "UnknownSlot",
    "UnknownType",
    "UnknownWebhook",
    "UnknownWorker",
    "UnknownWorkflow",
    "Unstorable",
    "UnsupportedStore",
    "WebhookError",
    "WorkerSilent",
    "WorkflowAborted",
    "WorkflowFailed",
    "WrongIsolation",
]

for _name in __all__:
    # Histories and tracebacks name an error as people import it, wherever its class is written.
    globals()[_name].__module__ = __name__
