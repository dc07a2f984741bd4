import json
L="detent.lifecycle."; S="detent.stores."
T={}
def t(name, frm, doc, notes=None):
    e={"from":frm.split() if isinstance(frm,str) else frm,"doc":doc.strip("\n") if doc else None}
    if notes: e["notes"]=notes
    assert name not in T, name
    T[name]=e
def m(prefix, names): return [prefix+n for n in names.split()]

# ------------------------------------------------------------------ errors
t("detent.errors", "detent.errors detent.errors.root detent.errors.jobs detent.errors.stores detent.errors.workers", '''
Every exception that Detent raises, in one tree below `DetentError`.

    DetentError
    ├── IllegalTransition      the lifecycle table does not allow this move
    ├── AmbiguousId            the id prefix fits several jobs or workers (give more of it)
    ├── AppError               the program that jobs should run from cannot be used
    │   ├── AppAmbiguous       it has several apps (name one: module:name)
    │   ├── AppBroken          importing it failed; its traceback is in the message
    │   ├── AppMissing         it has no app, or none of that name
    │   └── AppNotFound        there is no such file or module
    ├── BadMachine             a lifecycle table contradicts itself (found at import)
    ├── BadHistory             a history that no legal lifecycle can produce
    ├── BadProof               an inclusion proof that does not lead to the trusted head
    ├── BadPolicy              a retry policy or workflow shape with an impossible value
    ├── BadArguments           arguments that do not fit the job's signature
    ├── BadOption              a job option with an invalid value, or one that excludes another
    ├── BadResult              a result that is not JSON, or not of the declared type
    ├── BadSignature           a function that cannot be a job as it is written
    ├── InsideLoop             a synchronous call inside a running event loop (await the async form)
    ├── InstanceLost           a worker that was declared lost (start it again under another name)
    ├── JobCancelled           the job whose result was requested was cancelled
    ├── JobExists              a job with this unique or idempotency key exists
    ├── JobFailed              the job whose result was requested failed for good
    ├── NotPortable            a handle cannot be pickled (keep its id instead)
    ├── NotQuiet               a worker with jobs could not suspend in time (it keeps working)
    ├── ResultTimeout          the job did not end in time (it keeps running)
    ├── EngineInUse            another program is connected with this engine id (try again)
    ├── EngineRefused          the server rejects an engine, or one of its messages
    ├── PackageMissing         an optional dependency is not installed
    ├── OpenToAll              a server reachable by others would serve a store that has no API keys
    ├── UnknownKey             there is no such API key in this store
    ├── UnknownJob             there is no such job in this store
    ├── UnknownWorkflow        there is no such workflow in this store
    ├── WorkflowAborted        the workflow whose result was requested was aborted
    ├── WorkflowFailed         the workflow whose result was requested failed
    ├── LimitError             more than one call or one job may have
    │   ├── NameTooLong        a name, tag or key that is empty or too long
    │   ├── NumberTooLarge     a JSON number that would be read as infinite
    │   ├── PayloadTooDeep     arguments that are nested too deeply
    │   ├── PayloadTooLarge    arguments that have too many bytes
    │   ├── ResultTooLarge     a result or checkpoint that has too many bytes
    │   └── TooMany            too many jobs in one call, or too many tags on one job
    ├── SecretError            a secret cannot be encrypted or decrypted
    │   ├── BadSecretKey       a key, or the file that holds it, cannot be used
    │   ├── NoSecretKey        there is no key to encrypt with (set DETENT_SECRET_KEY)
    │   └── SecretUnreadable   an encrypted value was changed, or its key is missing here
    ├── ProcessError           a process cannot be started or reached
    │   ├── CannotListen       the port is taken, or the address is not of this machine
    │   ├── ChannelBroken      a closed channel to a process, or an invalid message on it
    │   ├── CommandNotFound    there is no such program or working directory
    │   ├── CommandRefused     the file is not executable, or the system refuses to run it
    │   ├── ContainerError     the container runtime did not do what it was asked
    │   ├── ForkFailed         the system has no room for another process (try again)
    │   ├── PoolBroken         a pool process ended before it could run jobs
    │   └── TooManyFiles       no more files can be opened (raise the limit, try again)
    ├── SupervisorError        a supervisor cannot do what it was asked
    │   ├── AlreadyStarted     it was started before, and may have ended since
    │   ├── BadJournal         its journal cannot be read or written
    │   ├── BadSpec            a slot is described with a value that cannot work
    │   ├── JournalLocked      another supervisor uses this directory
    │   ├── NotStarted         it is not running, or runs as the worker of another supervisor
    │   ├── NotSuspendable     the worker cannot be suspended and resumed
    │   ├── SlotExists         there is already a slot of this name
    │   ├── StartFailed        a worker could not be started
    │   ├── SuspendTimeout     the worker did not become quiet in time and keeps working (try again)
    │   ├── TooManyRestarts    the supervisor gave up restarting
    │   ├── UnknownSlot        there is no slot of this name
    │   ├── UnknownWorker      there is no worker of this name, or it is not remembered any more
    │   └── WorkerSilent       a worker's supervisor did not carry out a command, or did not answer
    ├── WebhookError           a webhook that is invalid, or cannot be delivered to
    │   ├── AddressRefused     an address Detent does not connect to (private, local, no TLS)
    │   ├── BadWebhook         a webhook with an invalid address, event or secret
    │   ├── PostFailed         no answer, or none that is HTTP (try again)
    │   └── UnknownWebhook     there is no webhook or delivery of this id
    ├── BadSchedule            a schedule that names no times, or no valid job
    ├── ScheduleExists         there is already a schedule of this name (edit it)
    ├── UnknownSchedule        there is no schedule of this name
    ├── UnknownType            no program with this job type has worked on this store
    └── StoreError             a store cannot do what it was asked
        ├── BadName            a name that no database can keep (NUL, an unpaired surrogate)
        ├── BadUrl             a URL that names no store
        ├── BatchTooLarge      more in one call than a store commits at once (split it)
        ├── ClockAhead         the caller's clock is ahead of the store's
        ├── NoStore            this process works for a server and has no database
        ├── ReadTooLong        a query took too long (ask for less)
        ├── SchemaAhead        the tables are newer than this code
        ├── SchemaBehind       the tables are older than this code (migrate them)
        ├── ServerAway         the Detent server cannot be reached (it is tried again)
        ├── ServerRefused      the Detent server rejects this client or this call
        ├── StoreBroken        an open store met an I/O error and must be opened again
        ├── StoreBusy          somebody else held the lock for too long (try again)
        ├── StoreClosed        the store is not open
        ├── StoreCorrupt       the database contradicts itself
        ├── StoreFull          no space is left (try again when there is)
        ├── StoreOpen          this store object is open already (open another one)
        ├── StoreRefused       the database rejects the login or a permission is missing
        ├── StoreUnavailable   the database cannot be reached (try again)
        ├── UnfitChange        a change that may not be made inside the caller's own transaction
        ├── UnknownConnection  a connection object of an unsupported kind
        ├── Unstorable         the database rejected a decision: a bug in Detent (report it)
        ├── UnsupportedStore   a database, version or file system that is not safe enough
        └── WrongIsolation     an isolation level that cannot enforce uniqueness

Each class has a stable `code`, says whether trying again can help (`retryable`), and carries its
facts in `fields`, so that no caller has to parse the message. The message says what happened, why,
and how to fix it.
''', "Becomes the single file src/detent/errors.py (the package directory goes). Drop the re-export imports, `__all__` (keep one only if you keep `__all__` in public modules; `detent/__init__` and docs import names explicitly) and the loop at the end of errors/__init__.py that sets `__module__ = 'detent.errors'`: the classes are defined there now. Class order: root (DetentError first), jobs, stores, workers; StoreError subclasses keep their order. pyproject: the lifecycle-purity contract names `detent.errors` (still valid); importlinter layers name `errors` (still valid). The tree names UnfitChange, which stores.rename.json makes of UnfitUnit (its code unfit_unit is left for the step that changes codes).")

# ------------------------------------------------------------------ lifecycle
t("detent.lifecycle","detent.lifecycle",'''
Lifecycles of jobs, workflows, steps and workers, as tables of data and pure functions.

Nothing in this package reads a clock, a file, a database or a random number. Whatever would make an
answer unpredictable (now, ids, jitter) is an argument, so every rule can be tested and every past
decision can be repeated.

A `Machine` (machine) declares states, edges and who may cause them. `decide(record, command, now,
context)` answers `Accepted` with the new record and its `Event`s, `Unchanged`, or a `Refusal`;
`apply` is the only function that changes a record, so folding the events of a history gives the
record again. `job`, `workflow` and `worker` each hold a table, records, commands and decisions;
`retry`, `profile` and `seal` hold the rules they share; `replay` checks whole histories; `views`
shows a job in the words of each protocol; `diagram` draws the tables.

Start reading at job/table.py, then job/decide.py.
''')
t(L+"machine",L+"machine",'''
A lifecycle as data: states, edges, amendments, and who may cause them.

A `Machine` checks its table when it is built. `fire` answers one question, "may this actor move this
state along this event to that target?", with the declared transition or with a refusal that lists
what would have been allowed. It decides nothing else: the callers choose event and target.
''')
t(L+"event",m(L,"event life"),'''
Events: the one shape of a recorded move, and the invariants that every history keeps.

An event is written in the same commit as the move it records, and is never changed. It carries what
`fold` needs to rebuild the record, the error's code, and digests of what is stored elsewhere; never
a payload, a result or a traceback. Instants (`at`, `*_at`) are microseconds since the epoch, UTC;
durations end in `_us`.

`life_violation` checks the invariants that records of every kind share: versions without gaps, times
that never decrease, nothing after a terminal state.
''')
t(L+"profile",L+"profile",'''
Profiles: the rules that differ between the protocols a job can come in by, as one table.

A profile is fixed on a job when it is created. It says what a lost lease costs, how long a lease
lasts, how a running job is cancelled, what happens to it when its worker drains, and what running it
again means. No surface keeps such a rule in code.
''')
t(L+"retry",L+"retry",'''
Retry policies: whether a failed job runs again, and after how long.

`decide_retry` is asked once per failure that is charged to the job. It knows neither clock nor randomness:
the caller passes the number of failures and a random number for the jitter. A worker that hands a
job back unharmed has not failed it, so hand-backs never come here.

Everywhere below, `failures` includes the failure being judged: it is 1 for a job's first failure.
Durations are whole microseconds (`_us`).
''')
t(L+"replay",L+"replay",'''
Time travel over a record's history, and the proof that the history is legal.

`at_version` and `at_time` rebuild a record of any kind at any past moment. `audit` walks a history
event by event and explains the first one that no legal lifecycle can contain.

Decisions and folding share one `apply` per kind, so folding alone would prove little. `audit`
therefore asks the table about every edge and actor, checks that each event carries what a decision
would have written (`event_problem`), and recounts a job's counters without `apply`.
''')
t(L+"seal",m(L,"merkle seal"),'''
Tamper evidence: events become leaves, leaves a block, blocks a chain, and a chain has one head.

Whoever keeps the newest head (in a log book, with a signature) can later be given a proof of one
record's history and can check it alone, without the database and without trusting it.

The format, version 1, complete enough to write a checker in any language. A *hash* is SHA-256; in
JSON it is 64 lowercase hex digits. `||` joins bytes; nothing else is between the parts.

    text      the event as JSON: keys sorted, no spaces, UTF-8 unescaped, fields at their default
              left out, no floats. A proof carries this text, so a checker need not produce it.
    leaf      hash(0x00 || "detent.event.v1\\\\n" || text)
    node      hash(0x01 || left || right)
    root      level by level over the leaves in feed order: neighbours are joined, an odd last one
              is carried up as it is (the tree of RFC 6962). A block has at least one event.
    head      hash(message); `message` is seven lines, each ended by "\\\\n": detent.block.v1,
              number, first_pos, count (in decimal), root, previous, skip
    previous  the head of block number - 1; for block 0, which does not exist, 64 zeros (skip too)
    skip      the head of block `skip_of(number)`: take the largest 2^k - 1 that still fits off the
              number until nothing is left, then put the last one back (7 -> 0, 6 -> 3, 5 -> 4)

Block 1 holds the feed positions from 1; each block goes on where the one before ended. A `Proof`
is checked in this order; `check_proof` raises `BadProof` with the word of the step as `reason`:

    format    `format` is "detent.proof.v1"
    block     root, previous and skip of every block are hashes; a block starts at a position not
              below its number, block 1 at 1; what points to block 0 is 64 zeros
    head      the first of `blocks` has the trusted head
    chain     each following block is the `previous` or the `skip` of the one before it, by number
              and by head, and leaves room for exactly the blocks between, one event each or more
    entry     each entry names one of these blocks and an index below its count
    path      leaf and path lead to the root: at each level the next hash of the path joins from the
              left at an odd index, from the right at an even one; an odd last node takes none
    event     the text is exactly the canonical text of an event
    record    tenant, kind and record are those of the proof
    version   versions are 1, 2, 3, ... with no gap, at strictly growing feed positions
    route     `blocks` are exactly those that `route` needs

It costs one header (about 350 bytes of JSON) per step from the newest block to each one needed, at
most 3 * log2(blocks), and per event its text and log2(block size) hashes. It cannot show that the
record has no later events, not yet sealed or withheld by the prover (gaps it does exclude), nor
that every skip is honest; sealing the whole chain again from its leaves would show that.

Why the tree is built so: leaves and inner nodes are hashed with different first bytes, so that
neither can be passed off as the other, and an odd last node is never doubled, because two different
lists of leaves would then have the same root. Why the chain skips: with strides of 2^k - 1 (Myers,
"An applicative random-access stack", 1983) any block is reached from any later one in a number of
steps that grows with the logarithm of the length, and appending changes no earlier block.
''', "The docstring of today's seal.py is a specification and is kept word for word (its `\\\\n` inside the docstring is an escaped backslash: write \\\\n in the source as today). merkle is imported by stores (skip_of) and engine/verify (GrowingRoot).")
t(L+"views",m(L,"views views.table views.facts views.ojs views.rest views.jobnik views.engines views.shapes views.showing"),'''
Views: one job lifecycle, shown in the words of each protocol that speaks about jobs.

    view(job, ViewName.REST).state      # "pending", "running", "success", ...

A `View` is a table: the word for each state, the fields that appear, the transitions that the
protocol's own document names, and the extra transitions (`Extension`) that its readers may see
besides. The first row that fits a job gives the word. A view reads the lifecycle fields of the job
and nothing else, so any past moment can be shown too.

- **Open Job Spec 1.0** has our eight states, but its `pending` also means "staged, to be activated
  later", which Detent stores as a hold. So a held job that waits is shown as `pending`; one that is
  held while it runs stays `active`.
- **REST** shows a web front end pending, running, and three ends.
- **Jobnik** calls a job a task, a step a stage and a workflow a job. It has no cancelled task: one
  cancelled while it waited keeps its word, one cancelled while somebody had it has failed. It has no
  offers and no leases: a task is in progress from the moment somebody has it, and one whose lease
  ran out stays in progress until somebody else takes it, because its worker may still be busy with
  it and asks before it reports.
- **Engines** see queued, dispatched, running, and two ends. The protocol's other vocabularies are
  here as well: telemetry names, failure categories, and the names that states had before.
''', "Package becomes the single file lifecycle/views.py (DESIGN: 'as tables of data in one module'). Drop the re-export imports and `__all__` of views/__init__. Order of the parts: table, facts, ojs, rest, jobnik, engines, shapes, showing (VIEWS and view() last). Importers use `lifecycle.views.engines|jobnik|facts|shapes|table` and `from detent.lifecycle.views import X`: all become `from detent.lifecycle.views import X`. Collisions are in stores.rename.json (`_S`, `_MS` and `_E` are equal definitions or subsets: one copy).")
t("detent.surfaces.engines.telemetry",L+"views.telemetry",'''
Telemetry of the engine protocol, made from a job's history alone.

Each transition that has a name in the protocol is emitted once, in the order of the history. Instants
are taken from the events themselves, so a duration is always the difference of two instants that
were emitted before.
''', "Moves up a layer (only surfaces/engines/projecting.py and tests/lifecycle/test_telemetry.py import it). If the surfaces lane merges projecting/reporting into a target of this very name, append this module to that target's `from`.")
D=L+"diagram"
t(D,D,'''
Diagrams of lifecycles, workflows and supervision trees, as text that other programs show.

`lifecycles` knows the places of the four lifecycle diagrams and draws them, with the path of one
record if asked. `svg` draws boxes, arrows and column graphs, and holds the colours. `mermaid` writes
lifecycles in Mermaid's language, and turns a history into the numbered moves that both highlight.
''')
t(D+".lifecycles",D+".lifecycles",None)
t(D+".svg",m(D+".","palette svg"),'''
Draw SVG: boxes, arrows with rounded corners, graphs in columns, and the colours of all of them.

Every function is pure and returns text. An SVG holds no script and no inline style: classes and data
attributes say what a part is, and the stylesheet colours it, for light and for dark pages. Live
states are coloured by phase, terminal states by outcome. Colour never carries a meaning alone: every
state shows its name, terminal states are round, and actors have shapes.
''')
t(D+".mermaid",m(D+".","history mermaid"),'''
A lifecycle as Mermaid `stateDiagram-v2` text, and the moves that diagrams highlight.
''')
# job
J=L+"job"
t(J,J,'''
The job lifecycle: one table, one record, one function that decides.

    answer = decide(job, Complete(lease="..."), now, Context(by, command_id))

`decide` answers a command and `tick` answers the clock. Both return `Accepted` (the new record and
the events of one commit), `Unchanged`, or a `Refusal` that says why and what would be allowed.

A decision goes through the modules in this order: `validation` (are the values of the command
possible), `decide` (which event and target), `table` (is that declared, for this actor),
`validation` again (the guards of the edge), `apply` (the new record), `validation` (its invariants).
`records` has the record and the answers, `timers` the instants at which time alone changes a job,
`template` decides once for many alike jobs, `event_validation` checks stored events.

Start reading at table.py, then decide.py.
''')
t(J+".table",J+".table",'''
The job lifecycle table: eight states, every legal move, who may cause it, and the causes.

This table is the heart of Detent. Guards, diagrams, documentation, database constraints and tests
are generated from it. A golden hash in the tests freezes it; it changes only together with an ADR.
''')
t(J+".records",J+".record",'''
The job record, what a decision about it may look at, and the answers a decision can give.
''')
t(L+"dead_letters",L+"dead_letters",'''
Dead letters: discarded jobs that are kept for somebody to look at, or to run again.
''', "Could join job.records, but imports Job from the package detent.lifecycle.job, whose __init__ imports records: only if your tool drops from-imports whose origin() is in the same target.")
t(J+".commands",J+".commands",'''
Commands: everything that can be asked of a job. `decide` says what becomes of each.

Commands of a worker name the lease they speak under. A wire client that knows no leases sends
`None`: the lease of record is then meant, provided the job is held over the wire and the `holder`
that the command names, if any, is the holder of record. `event` is the event that the command asks
for; `decide` chooses the target, and may write another event instead.
''')
t(J+".apply",J+".applying",'''
`apply`: the only function that changes job records. Deciding and folding both go through it.

It trusts the event and reads nothing but its name, its target and the facts it carries; whether the
event is legal was settled before it was made.
''')
t(J+".timers",J+".waking",'''
Timers: the instants at which time alone changes a job, computed from its record.

`next_wake` is a lower bound that is cheap to compute and may be early; `tick` looks again with the
lease row and the gate at hand.
''')
t(J+".validation",m(J+".","guards values invariants"),'''
Validate decisions about jobs: values of the command, guards of the edge, invariants.

Command values are checked before anything is decided. Every string that ends up in an event must be
writable as UTF-8, or no seal could cover it, and must hold no NUL, which not every database can
keep; every number must fit a database column.

Guards are the named conditions that edges ask for beyond state and actor: `None` when met, else an
`Unmet` with the reason. Invariants hold for every job at every version; they are checked on each
accepted decision, and by `detent verify` over whole histories.
''')
t(J+".event_validation",J+".evidence",'''
Validate stored events of jobs: whether each carries what a decision would have written.

A decision cannot forget any of this, but whoever edits a history can. Only what the history itself
says is checked again: a lease row, a gate or a row of the profile table may have changed since.
''')
t(J+".decide",m(J+".","planning deciding"),'''
`decide` and `tick`: the two ways a job can move, both pure.

`decide` answers a command, `tick` answers the clock. Both make a plan, ask the table, check the
guards of the edge, write the event, carry out what is due at once, and check the
invariants before they answer.

A planner per command says "this event, to that target, with these facts"; whether that is legal is
the table's business. A plan that changes nothing is still put to the table, so that only actors who
may do a thing learn that it is done already.
''')
t(J+".template",J+".stamping",'''
Decide once for many alike jobs, and copy the decision for the others.

Alike jobs differ only in id, place and instants, and a decision looks at nothing else of them. So
one of them is decided, and a second one is decided too to show that the copy is right before any
copy is made.
''')
# worker
W=L+"worker"
t(W,W,'''
The worker lifecycle: one attempt at running a worker, from creation to its end.

`table` declares the ten states and the causes. `decide` has one function per request (`start`,
`stop`, `kill`, `end`, ...), each of which answers `Accepted` with the new `Instance` and its events,
`Unchanged`, or a `Refusal`. `exit_status` classifies how a process ended, `records` has the
`Instance` and `apply`, `validation` has guards, invariants and the checks of stored events.

Start reading at table.py, then decide.py.
''')
t(W+".table",m(W+".","table causes"),'''
The worker lifecycle table: ten states, seventeen edges, and the cause each move may carry.

A worker *instance* is one attempt at running a worker: it walks this table once and is never used
again. Its end is classified by intent and outcome: `stopped` obeyed a request, `finished` was done,
`failed` broke, `killed` did not stop in time and was forced. A history that names another cause than
`may_have_cause` allows was not written by a decision.
''')
t(W+".records",W+".record",'''
The record of one worker instance, and the two functions that build it: `apply` and `fold`.

`apply` takes a record one event further; `fold` builds it from a whole history. Both refuse words
that no worker event knows and otherwise trust what they are given; `validation` checks whether a
history is legal.
''')
t(W+".validation",m(W+".","guards invariants evidence"),'''
Validate worker instances: the guards of edges, the invariants, and stored events.

The guard `slot_ready` is missing here: it is the supervisor's word at the moment of the request, is
checked then (`decide`), and cannot be checked again from a history.
''')
t(W+".decide",m(W+".","asking steps moves"),'''
Everything that can be asked of a worker instance, and the answer: pure, total, idempotent.

Every function answers `Accepted` (the new record and its events, to be appended in one commit),
`Unchanged` (already so), or a `Refusal` that names the state and what would have been allowed. A
refusal changes nothing and never harms the worker.

Who asks is checked before the state, because an answer of "already so" must not tell an outsider
more than a refusal would, and because a bridging step, which is recorded as the supervisor's, must
not do for an actor what the table denies it. A request becomes a list of steps; either every step is
legal in the state that the one before it leaves, or the answer is a refusal and nothing happened.
''')
t(W+".exit_status",W+".outcome",'''
Classify how a worker instance ended: its terminal state and the cause.

Intent (was it asked to end, was it forced) and outcome (what was seen of the end) together give the
answer. The order of the checks is the rule; the first that holds decides.
''')
# workflow
F=L+"workflow"
t(F,F,'''
Workflows: a graph of steps, each a set of jobs, moved by two tables and one cascade.

    answer = decide(None, CreateWorkflow(id="w", steps=chain("fetch", "resize")), now, ctx)
    answer = cascade(flow.with_change("fetch", counter_change(before, after)), ("fetch",), now, ctx)

`decide` answers a command, `cascade` what the jobs did. Both return the `Flow` (workflow, steps and
their counters) as it is afterwards and the events of one commit. Every shape, ordered stages
included, goes through the same rules.

`table` declares both lifecycles, `graph` the shapes and what can still become of a step, `counters`
how jobs are counted per step, `records` the records, `apply` how events change them, `validation`
guards and invariants.

Start reading at table.py, then cascade.py.
''')
t(F+".table",F+".table",'''
The workflow and step lifecycle tables, who may cause each move, and the causes.

A workflow is what a user handles; a step is one set of its jobs. Users steer workflows and release
steps; everything else follows from what the jobs do. A golden hash in the tests freezes both tables.
''')
t(F+".counters",F+".tally",'''
Step counters: how far a step has come, as numbers that move by deltas.

Every job of a step is counted under exactly one of five words, and these add up to `total`. A
cancelled job keeps the word it had: cancelled while it waited it stays `pending` or `retried`,
cancelled while a worker had it it counts as `failed`. Beside the words, `cancelled` counts all jobs
that ended so, and `withdrawn` those of them that still stand under pending or retried; without it
the counters could not show that a step has nothing left to run. `lost` counts the retried jobs whose
holder was lost and that nobody has claimed since: Jobnik shows them as in progress.
''')
t(F+".records",m(F+".","plan record"),'''
The records of a workflow and its steps, the plan of a step, and the answers of a decision.
''')
t(F+".commands",F+".commands",'''
Commands: everything that can be asked of a workflow. `decide` says what becomes of each.

`event` is the word by which a refusal names the command.
''')
t(F+".graph",m(F+".","shapes standing"),'''
Workflow graphs: the usual shapes, the check of every graph, and the outlook of its steps.

    chain("fetch", "resize", "publish")
    batch("one", "two", on_failure="alert")
    dag({"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")})

A shape only plans: its steps go into `CreateWorkflow`. Jobs that start and end together are one step
with many jobs; a step per job is for jobs that others depend on one by one.

The outlook says whether a step's turn has come, may still come, or never will. A step whose
condition can never be met is either blocked, because a step before it failed, or skipped, because
the failure it is for did not happen. To the steps after it a blocked step counts as failed, a
skipped one does not. An outlook, once it is final, never changes: that is why a step counts as
skipped only when every step before it is decided.
''')
t(F+".apply",F+".applying",'''
`apply_workflow` and `apply_step`: the only functions that change workflow and step records.

Deciding and folding both go through them. They trust the event; whether it is legal was settled
before it was made.
''')
t(F+".validation",m(F+".","guards invariants"),'''
Validate workflows and steps: the guards of edges, and the invariants.
''')
t(F+".cascade",m(F+".","commit cascade"),'''
`cascade`: what follows for steps and workflow when the counters of a step have changed.

It looks at where the counters stand, not at what moved them, so a batch of a thousand reports is one
question, and asking twice changes nothing. At most two edges follow per step, its start and its end,
and a resumed workflow starts again with the first report of its jobs. `needs_cascade` tells from the
workflow, one step and its counters whether any of that is due.

Cost: the steps touched, and those that depend on a step decided in this commit, are judged. Around
that, a step's end walks once over the list of steps, well under a microsecond each; only a step
whose dependencies have not had their turn, a failure, and the end of the workflow look at the whole
graph.

`Commit` collects the moves of one commit, for `decide` and for `cascade`: every move goes through
the tables here, guards included, and is checked as it is made; a refused move leaves the commit as
it was.
''')
t(F+".decide",F+".deciding",'''
`decide`: what a command does to a workflow and its steps, pure.

A command moves what it names; then the graph settles in the same commit: steps get their turn, end
if their jobs have ended already, and the workflow follows. Commands cost time in proportion to the
size of the graph.
''')

# ------------------------------------------------------------------ stores
t("detent.stores","detent.stores",'''
Stores: records and their histories, behind one protocol.

    async with open("sqlite:///var/detent.db") as store: ...

A store is simple: it commits what the lifecycle decided, all or nothing, behind fences; it hands out
what may be claimed and what is due, each item to one caller; and it remembers.

The protocol is `Store` in protocol.py; what callers send and receive is in types.py. The rules that
every store shares are pure modules: conflict_checks (fences, uniqueness), workflow_effects (what
follows for workflows), rate_limits and claim_order, validation. `sqlite`, `postgres` and `memory`
implement the protocol; `memory` is the reference that the others are compared with. `caller_tx`
enqueues in the caller's own transaction. The scheme of the URL chooses the store; only the chosen
one is imported.

Start reading at types.py, then memory/store.py.
''', "The function checkup() looks for the module f\"{module.__name__}.checkup\": change the string to `.health` (two places: the name and import_module). `checks` is imported as a module (`checks.notice`, `checks.Check`): now `health`. SCHEMES strings stay (packages keep their names). docs/ADRs and pyproject importlinter contract 'Stores do not know each other' lists module names: new layers (top to bottom): caller_tx; memory | sqlite | postgres | fault_injection; shared_store; conflict_checks; columns; filters | paging ...; simplest is: caller_tx / memory | sqlite | postgres | fault_injection / shared_store / conflict_checks | columns | paging / protocol / filters / workflow_effects | validation | claim_order / types / rate_limits | migrations | workers / wakeup | health.")
t(S+"protocol",S+"api",'''
The store protocol: what every store promises, as a write side and a read side.

Every call takes many items, commits once and answers per item. Instants are microseconds that the
caller passes: no statement asks the database for the time.

What is committed all or nothing is a `Change`: the records of one decision with their events. Many
changes share a transaction; one that cannot be committed never hurts its neighbours.
''', "Re-exports everything of types/workers/rate_limits/filters with `__all__`; best pointed at the real modules by the codemod and dropped here. `from detent.stores.api import X` (131 imports) and `from detent.stores import api` (`api.X`).")
t(S+"types",m(S,"shapes uniform"),'''
The values that go into a store and come out of it.

A `Change` is one decision: jobs that move (`JobUpdate`), new jobs (`NewJob`), a workflow's moves
(`WorkflowUpdate`), documents, pauses and limits. Each is answered by an outcome (`Committed`,
`Conflict`, `Duplicate`, ...). A `ClaimRequest` is answered by a `ClaimResult`. A `ChangeColumns` is
many changes of one kind, kept as the few values in which they differ: stores read it as changes like
any others, or take the columns where these can be written at once.
''')
t(S+"workers",m(S,"workers worker_rows"),'''
Worker instances as a store knows them: who they are, whether they are gone, their rows.

A row is written once, when the instance registers; renewing it changes only the columns of the
heartbeat. What happened to an instance is a history like any other, of kind `worker`.
''')
t(S+"filters",m(S,"select chosen"),'''
Filters and pages: what can be asked of a store's records, and what it means for one job.
''')
t(S+"paging",S+"pieces",'''
Read long pages in bounded pieces, so that a rare match never holds up other callers.

A job that has little in common with others (an old type, an empty queue) stands in no index of its
own: finding it means walking over all others. A piece is a statement of a few milliseconds; between
two pieces the connection, its snapshot and the thread are free for other callers.
''')
t(S+"rate_limits",S+"limits",'''
Rate limits: how many more jobs may start now, and when time lets the next one through. Pure.

A limit may bound how many jobs are held at once (`concurrency`), how many start within a period
(`rate`), and how far apart starts are (`spacing_us`); all that are set hold together. A period
begins with its first start: `rate` jobs start within it, and the first start after it opens the
next. Set the spacing to spread starts evenly.
''')
t(S+"claim_order",S+"quotas",'''
The order of a claim under limits and fairness: how much room is left, and whose turn it is.
''')
t(S+"conflict_checks",m(S,"fences siblings judging"),'''
Check changes and claims against what is stored, before anything is written.

Every store uses these rules; it only supplies what is stored. Three fences: the version of a job
(compare-and-set), the lease that a report names, and the lease row itself where a lease is declared
lost (renewal moves no version). Then uniqueness: ids, idempotency keys and unique keys, also among
the new jobs of one change, of which none is stored yet. A change whose own command is found in the
history was committed before, and its reply was lost.
''')
t(S+"validation",m(S,"legal bounds"),'''
Refuse what no store may hold, and what no store accepts.

`change_violation` states the checks and triggers of a database as one function. Callers are refused
too when their clock is ahead, when they ask for too much at once, and for text or numbers that one
database would keep, another would garble and a third would reject.
''')
t(S+"workflow_effects",m(S,"gates flows"),'''
What follows for a workflow when its jobs move, as a store commits it. Pure.

A store keeps counters per step, moved by what its jobs do. After every change it asks here what
follows, and commits the answer in the same transaction, in this order: first everything that was
asked for, then, workflow by workflow, the moves of workflow and steps, then the jobs that are
cancelled because nothing in their step will run any more.

`gate_of_job` combines the gates of a job's queue, type and step into the one that the job sees.
''')
t(S+"columns",m(S,"births completions"),'''
Alike changes as columns: new jobs of one template, and completions of one holder at one moment.

What all of them share is kept once. A store reads them as changes like any others, or takes the
columns where it can write these at once.
''')
t(S+"shared_store",m(S,"writing alike"),'''
What all stores share: the checks on every call, and the order in which a change is written.

`SharedStore` refuses calls while a store is closed, after a fork, and with a clock that is ahead.
`ChangeWriter` writes a change that has passed all checks: everything that was asked for first, then
what follows from it for workflows. The order is the same in every store that writes changes one by
one; a store only says how each part is written.
''')
t(S+"wakeup",S+"bell",'''
Wake callers that wait for claimable jobs, after our own commits and those of others.
''')
t(S+"fault_injection",S+"faulty",'''
A store whose calls fail by seed, as they do when a connection is cut. For tests.

    faults = FaultPlan(seed=7, rates={Fault.REPLY_LOST: 0.1})
    store = with_faults(stores.open("sqlite:detent.db"), faults)

Nothing is wrong with what is stored; only calls fail. A program that works on such a store for a
while, loses nothing and does nothing twice survives an outage.
''')
t(S+"migrations",S+"migrations",'''
Versions of a database's tables: known ones, missing ones, and the code that may use them.

A migration is a file `NNNN_name.sql` with a line `-- min_code: N`, and a line `-- takes: ...` where
it reads or writes all jobs. The version of the code is that of the newest migration it brings. The
tables remember their own version and the oldest code that may use them, so that a rolling deploy
works in two steps: a migration that only adds something keeps `min_code` low, and running code goes
on beside it; a later one that takes something away raises it, and older code is then refused.
''')
t(S+"health",S+"checks",'''
Health checks: what was looked at, what was found, and whether that is as it should be.

A store knows best what can be wrong with its own database and reports it in these types; `detent
doctor` shows them beside what it found elsewhere.
''')
I=S+"inside"; C=S+"caller_tx"
t(C,I,'''
Enqueue in the caller's own transaction: jobs and the caller's rows appear together.

    with psycopg.connect(url) as connection:
        connection.execute("INSERT INTO orders ...")
        outcome = enqueue(connection, change, now)

`enqueue` and `complete` are for blocking connections, `aenqueue` and `acomplete` for awaited ones.
The kind of a connection is recognised by its class, so no driver is imported that is not in use
already. Nothing is committed here: the answer holds if the caller's transaction does. A refused
change leaves nothing behind, and the transaction can go on.

drivers.py recognises connections and writes through them, postgres.py and sqlite.py speak to the
two databases.
''', "house_merge writes this as stores/caller_tx.py (its is_pkg only knows old packages): move it to stores/caller_tx/__init__.py, and inside/call.sql to caller_tx/call.sql. Package renamed: `git mv src/detent/stores/inside src/detent/stores/caller_tx`, call.sql with it (statements reads files(__package__) / 'call.sql'). drivers has function-level imports of `detent.stores.inside.sqlite` (noqa PLC0415) that must be rewritten too. Check pyproject (package-data, importlinter layer `inside`), docs and tests/inside for the string `stores.inside`.")
t(C+".drivers",m(I+".","statements fit ways joining"),'''
Recognise the caller's connection, check that the change may be made there, and write it.

A kind of connection is recognised by the package and name of its class, or of one it derives from.
So nothing is imported to find out, and what is imported afterwards is in use already.

Only new jobs, or the end of the job that the caller is running, may be written in somebody's own
transaction: everything else would lock rows that other programs are working with until the caller
commits.
''', "Reads call.sql via files(__package__). `_WAYS` etc. use the driver modules postgres (import at top) and sqlite (imported in functions).")
t(C+".postgres",I+".postgres",'''
PostgreSQL: send the change to an SQL function as JSON, and read its answer.

This module imports no driver, and not the store either, which would bring one along.
''')
t(C+".sqlite",I+".sqlite",'''
SQLite: the store's own code writes on the caller's connection and in its transaction.
''')
M=S+"memory"
t(M,M,'''
The store in memory, and the reference model: the whole protocol in dictionaries.

Nothing here is fast or clever. Other stores are right when they do what this one does. No method
awaits anything while it changes something, so every call is one moment.
''', "Keep it a package (stores/__init__ asks find_spec('detent.stores.memory.health'), which needs a package).")
t(M+".store",m(M+".","tables reading store"),'''
The store in memory: its tables, its reads, its claims, timers, workers and retention.

`Tables` holds one dictionary per kind of record, checks changes and writes them. `MemoryStore` is
the protocol on top of it. Whatever is searched for is found by looking through a dictionary.
''', "`reading` and `store` use the package modules api, bounds, judging, legal, quotas, fences, siblings, seal, job as j by attribute. tests/contract/planted_*.py subclass MemoryStore, Reading and Tables by private method names.")

Q=S+"sqlite"
t(Q,Q,'''
The store on one SQLite file, which several processes may open at the same time.

store.py is the protocol. Writes go through one thread per process (writer.py), which runs whatever
has queued up as one transaction (commit.py, claim.py, timers.py, workers.py, retention.py); several
processes take turns by a lock file (process_lock.py). Reads run beside it on connections that cannot
write (readers.py, queries.py). Every statement is in sql/*.sql and is looked up by name
(statements.py).

Start reading at store.py, then writer.py and commit.py.
''')
t(Q+".store",Q+".store",'''
The store protocol on SQLite: writes go through one thread, reads through others.
''')
t(Q+".writer",m(Q+".","sleeping operations writer"),'''
The one thread that writes: everything that has queued up is one transaction and one fsync.

A lone caller waits for nobody: the thread starts with whatever is there, and callers that come while
it syncs share the next transaction. Answers are given after COMMIT has returned.

Idle, the thread sleeps until a caller wakes it or another process writes to the journal. Linux
reports the latter (inotify), so nothing has to be polled; that it really does is shown by a first
write before it is relied upon. Until then, and on other systems, the file is looked at often.
''')
t(Q+".process_lock",m(Q+".","turns pen"),'''
Who may write: one process at a time by file locks, and one thread of it.

Processes on one file take turns, so that nobody ever finds the database locked. Two locks make it
fair: a process that waits for the second holds the first, so one that has just written and wants to
write again has to queue behind it. The kernel frees both when a process dies, but not when it is
merely stopped, and knows no time limit; so a thread waits in our place while we watch the clock.

A caller that waits anyway may write in its own thread, because waking the writer thread and being
woken by it takes longer than most writes. But our code in a caller's thread can be interrupted
between any two steps by a signal or an injected exception, and an interrupted caller must not keep
the lock or a transaction. So the whole write is one call into C that runs a list of calls: Python
looks for signals only between its own instructions.
''')
t(Q+".readers",m(Q+".","threads pool"),'''
Reader threads, each with its own connection, which work until the very end of a program.

The usual thread pools accept nothing once the main thread has ended. But other threads may still be
at work then, and functions that run at exit still want to close a store.
''')
t(Q+".connection",m(Q+".","patience connection"),'''
Open connections, read back their settings (only those in force count), and timeouts.
''')
t(Q+".database_file",m(Q+".","place growing"),'''
The database file: its URL, permissions, file system, and write-ahead log.

The write-ahead log is emptied into the database as soon as nobody reads what was there before. A
reader that never ends keeps it growing until the disk is full, and nobody would notice in time; so
its size is watched and reported.
''')
t(Q+".errors",Q+".faults",'''
Translate errors of SQLite into ours, and say which of them are fatal.
''')
t(Q+".statements",m(Q+".","legality statements"),'''
Named SQL statements, read once from the files beside this module.

    -- name: job_head
    SELECT ...

A statement is looked up by its name; there is no other way to SQL in this package.

Conditions that the lifecycle tables declare are generated into the schema, so that the database
rejects what no machine declares. They are chains of OR, the most frequent moves first: SQLite builds
the list after IN anew for every row it checks, while a chain stops at the first match.
''', "files(__package__) stays valid (sql/ and migrations/ stay in the sqlite package). Tests import `legality.fill`.")
t(Q+".schema",Q+".migrate",'''
Bring the tables to the version that this code knows, or say why that cannot be done.
''')
t(Q+".row_codec",m(Q+".","spots rows"),'''
Convert rows to records and back without loss, and name the lane a job is counted in.
''')
t(Q+".pending_writes",m(Q+".","bearing pending known writing"),'''
What one transaction will write: collected rows, and a view that includes them.

Rows are collected change by change and written table by table (`PendingRows`). Reads inside the
transaction go through what is pending (`TransactionView`). `PendingWriter` turns changes that have
passed all checks into rows.

New jobs are written by the column, one statement per table however many they are: a statement that
is run row by row releases and takes Python's lock for each row, and repeats what all rows share.
''')
t(Q+".commit",m(Q+".","ends plain units transaction"),'''
Commit changes to SQLite: check them one by one, write them together.

When that fails because the database rejects a row of one of them, everything is rolled back and done
again carefully: each change by itself under a savepoint, so that only the one at fault is refused.

Two common kinds have a shorter way that writes the same rows: a plain new job or completion
(`PlainChanges`), and runs of alike completions, which are written as columns with one statement per
table (`CompletionBatch`), because a worker that drains a backlog ends jobs by the hundred.
''')
t(Q+".claim",m(Q+".","quotas taking claim"),'''
Claim jobs from SQLite: the database finds the next jobs in order, the lifecycle decides each.

Within one claim, the request, the pause and the moment are the same for all jobs of a lane, and
records that differ only in ids, place and instants are the same to the decision. So the answer to
the first is kept with blanks, and every job that stands just like it is filled into it
(`ClaimBatch`).
''', "`claim` is both module and function (store.py does `from detent.stores.sqlite import claim` and `claim.claim`).")
t(Q+".timers",Q+".upkeep",'''
What time and holders change: due jobs and documents, progress, lease extensions, logs.
''')
t(Q+".workers",Q+".workers",'''
Worker instances in SQLite: heartbeats, deaths, histories, and the reads about them.
''')
t(Q+".retention",m(Q+".","sealing pruning"),'''
Seal events into blocks, and delete what retention lets go.

What may go is searched beside the writer, because much that is old may have to stay. Then it is
deleted in short commits, each record with its whole history, if it may still go by then. Leaves of a
block are hashed beside the writer too; the block is added only if the chain still ends before it.
''')
t(Q+".queries",Q+".reader",'''
Reads of committed data, each call at one moment, on connections that cannot write.
''')
t(Q+".health",Q+".checkup",'''
Check the health of a database file: its place, free space, log, tables and pages.

Nothing is created or changed: a place that is not good is not even touched.
''', "Named by the string in stores/__init__.checkup.")

P=S+"postgres"
t(P,P,'''
The store on PostgreSQL, which any number of processes may share.

store.py is the protocol; it runs operations on a small pool of connections (pool.py,
connection.py). A commit goes through change_batch.py (which changes can be sent at once), commit.py and, if
something has to be checked first, conflict_checks.py; a claim through claim.py. notify.py wakes other
processes, event_feed.py gives events their positions. Every statement is in sql/*.sql and is looked
up by name (statements.py).

Start reading at store.py, then change_batch.py and commit.py.
''')
t(P+".store",P+".store",'''
The store protocol on PostgreSQL: two connection pools, a listener, and a clock.
''')
t(P+".commit",m(P+".","switching writing stepping"),'''
Commit changes to PostgreSQL: plain ones in one statement, others after checks.

Changes that have passed all checks are written together, table by table and in their order. When the
database rejects a row, or somebody's open transaction is in the way of one, the changes are done one
by one, so that only the one at fault is refused.
''')
t(P+".conflict_checks",P+".judging",'''
The conflict checks on PostgreSQL: read what is stored under locks, then check every change.
''')
t(P+".change_batch",m(P+".","bearing ends sorting"),'''
Classify a batch of changes: sent in one statement, or checked first.

Changes that are alike send what they share once: new jobs of one template, and completions of one
holder at one moment. For completions the first is looked at closely, and each of the others is only
compared with it.
''')
t(P+".row_codec",m(P+".","rows arrays"),'''
Convert rows to records and back without loss, and build the array parameters of statements.
''')
t(P+".lanes",P+".lanes",'''
Lanes: what a claim chooses jobs by, each with a small number that never changes.
''')
t(P+".claim",m(P+".","marks quotas claiming granting"),'''
Claim jobs from PostgreSQL: one statement finds, locks and moves them.

The lifecycle decides once per profile, about a job that stands for all that the statement can find:
available, not paused, not expired. The statement writes that answer, and the contract tests compare
every claimed record with the decision about that very record. Where limits, fairness or workflows
have a say, the statement claims nothing, and `claim_carefully` decides job by job, one claimer at a
time.

While a transaction keeps an old snapshot open, index entries of claimed jobs cannot be removed, and
every claim walks over them again. A claim that begins where the last one ended does not
(`ClaimMarks`). A job may come to stand before a mark (a retry with an older place, a higher
priority, a late commit), so marks are kept only while claims are slow, and never for long.
''')
t(P+".workflows",P+".flowing",'''
Workflows inside one transaction: read under a lock, moved by their jobs, then written.
''')
t(P+".queries",P+".reading",'''
Reads of committed data: each call is one statement, and so one moment.
''')
t(P+".event_feed",P+".feeding",'''
The event feed: give positions to committed events and log lines, and seal them into blocks.

One sequencer at a time gives positions to what has been committed, so no late commit is skipped.
''')
t(P+".notify",P+".listening",'''
NOTIFY and LISTEN: wake other processes after our commits, at most every few milliseconds.
''')
t(P+".caller_connections",P+".nearby",'''
Connections on the event loops of callers, for one that enqueues alone again and again.

Crossing to the store's loop and back takes a lone caller as long as the insert itself. Callers that
have company cross over all the same, and share a commit.
''')
t(P+".timers",m(P+".","placing upkeep"),'''
What time and holders change: due jobs and documents, progress notes, lease extensions, lanes.

Jobs that were enqueued in a caller's own transaction get their lane here, once they are committed:
creating the lane there would make everybody who needs the same lane wait for that transaction.
''')
t(P+".workers",P+".workers",'''
Worker instances in PostgreSQL: heartbeats, deaths, histories, and the reads about them.
''')
t(P+".retention",P+".pruning",'''
Delete what retention lets go: ended jobs, workflows without jobs, and expired results.
''')
t(P+".health",P+".checkup",'''
Check the health of a server: settings, load, clock, long transactions, and our permissions.

All of it is asked on one connection of its own, with a short timeout. Nothing is changed.
''', "Named by the string in stores/__init__.checkup.")
t(P+".pool",P+".pool",'''
A few shared connections, opened when they are needed and replaced when they are lost.
''')
t(P+".connection",m(P+".","connecting connection"),'''
Connections: reach the first of several hosts that takes writes, and run named statements.

Each host gets its chance and none holds up the others: a host that is gone answers nothing at all.
TCP keepalives watch open connections for the same reason: otherwise a host that lost its power would
be waited for until the statement timeout.
''')
t(P+".server",P+".server",'''
The server: the settings it must have before we trust it, and its clock.
''')
t(P+".database_url",P+".address",'''
The URL of a database: PostgreSQL's own, and a few parameters of ours.
''')
t(P+".errors",P+".faults",'''
Translate errors of PostgreSQL and its driver into ours, and say which may be retried.
''')
t(P+".statements",m(P+".","columns legality statements"),'''
Named SQL statements, read once from the files beside this module.

    -- part: picked
    picked AS (SELECT ... LIMIT $wanted)

    -- name: claim
    WITH {{picked}} SELECT ...

A statement is looked up by its name; there is no other way to SQL in this package. Parts stand in
for words in double braces, and so do the columns of the lifecycle's own structs and the conditions
of its tables, so that the database rejects what no machine declares. Parameters have names;
PostgreSQL gets them by number, in the order in which they first appear.
''', "files(__package__) stays valid (sql/, migrations/, stamp.sql stay).")
t(P+".schema",P+".migrate",'''
Bring the tables to the version that this code knows, or say why that cannot be done.
''')
import textwrap,re as _re
for k,e in T.items():
    if not e["doc"]: continue
    out=[]
    for p in e["doc"].split("\n\n"):
        ls=p.split("\n")
        if any(len(l)>99 for l in ls):
            if ls[0].startswith("- "):
                items=_re.split(r"\n(?=- )",p); p="\n".join(textwrap.fill(" ".join(x.split()),98,subsequent_indent="  ",break_long_words=False,break_on_hyphens=False) for x in items)
            elif not any(l.startswith((" ","│","├","└")) for l in ls):
                p=textwrap.fill(" ".join(p.split()),98,break_long_words=False,break_on_hyphens=False)
        out.append(p)
    e["doc"]="\n\n".join(out)
    for i,l in enumerate(e["doc"].splitlines()):
        if len(l)>(100 if i else (97 if "\n" in e["doc"] else 94)): print("LONG",k,len(l),l)
json.dump(T,open("/work/tables/stores.merge.json","w"),indent=1,ensure_ascii=False)
print(len(T),"targets",sum(len(e["from"]) for e in T.values()))
