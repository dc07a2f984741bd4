D={}
N={}
E='detent.engine.'
D['detent.engine']='''The engine: decides commands with the lifecycle and commits what it decides to a store.

Everything above (app, surfaces, runtime, command line) talks to one `Engine` per open store. The
lifecycle decides (pure functions), the store remembers, the engine connects the two: it loads a
record, lets the lifecycle decide, and commits the decision; if the record has moved meanwhile, it
loads and decides again.

Main types: `Engine`, `JobTemplate` (a job to create), `JobCommand` (a command to one job),
`GroupCommit` (batches concurrent callers into few commits), `Maintenance` (what time alone
changes). An enqueue goes through `enqueue`, `job_template` and `group_commit`; a worker's report
through `commands`; reads through `queries`. Start reading at `engine`, then `commands`.'''
D[E+'ids']='''Create ids for records, leases and commands, and positions in a queue.

Ids are UUIDs of version 7: the time in front makes them sort by age, the random part behind makes
them unique without asking anybody. They are drawn in bulk, never twice in one process, and a forked
process starts with fresh random bytes. `derived_id` makes the same id from the same instant, number
and texts, so that two processes that create the same thing create it once.'''
D[E+'store_reads']='''Reads of the store that several parts of the engine share.

`job_pages` and `all_records` read everything of a kind page by page. `Cache` keeps answers for a
second; of several callers that ask for the same key at once, one asks the store and all get its
answer. `resolve_id_prefix` finds the one job whose id begins with what a person typed; a whole id
means that job even if other ids begin with it.'''
D[E+'job_template']='''A job to create: its template, and the job record that it becomes. Pure.

`JobTemplate` is what every caller fills in: type, payload, queue, options. What is `None` comes
from the profile or is made up. `create_job` lets the lifecycle decide on it; nothing is stored
here.

A job belongs to a request by its W3C Trace Context, stored in its metadata as `traceparent` and
`tracestate`, the names under which other systems look for it. No decision depends on it.

Two time limits are fixed when a job is created and read here later: how long all its attempts
may take together (part of its retry policy), and how long its result is kept (in its metadata,
else from its profile).'''
D[E+'limits']='''The limits on what one job or one call may bring, and the errors that name them.

They protect everybody else: a payload is read at every claim, a name is stored in an index, a batch
holds the write lock. Each error says what was too much, why that matters and what to do.'''
D[E+'group_commit']='''Batch concurrent callers into few commits.

Whatever arrives while one commit runs goes into the next one. Nothing is held back to make a commit
larger: a lone caller waits for nobody, idle latency is that of one commit, and throughput grows
with the number of callers.

Where the store can commit several things at once, claims have a lane of their own beside the
changes: jobs are claimed while others are ended, and no end waits for a claim. Only small requests
share a commit, because a commit costs more than the few rows in it.

`Batcher` does the same for work that needs no store; `map_in_slices` lets other tasks of the loop
run between slices of a long computation.'''
D[E+'secrets']='''Encrypt the arguments that a job type declares secret, and decrypt them for the handler.

An encrypted value is stored in the payload as `{"$detent:secret": "1.<key id>.<nonce and
ciphertext>"}`. AES-256-GCM binds it to its job (tenant, id, type) and to its place in the payload:
moved to another job, type or argument it does not decrypt. Each job has a key derived from the
first key of the ring, so that random nonces stay far from their limit however many jobs there are.

Keys are never stored in the database that they protect. `DETENT_SECRET_KEYS` has them in base64, 32
bytes each, separated by commas, newest first (`DETENT_SECRET_KEY` for a single one); a SQLite file
without either gets a key file beside it. The first key encrypts, all of them decrypt, so keys can
be rotated while jobs wait. A key's id follows from the key: two keys cannot share one.'''
D[E+'commands']='''Carry out commands to jobs: load, let the lifecycle decide, commit.

If a record has moved since it was read, it is loaded and decided again; the caller is refused only
if the decision on the fresh record is a refusal. After a lost reply of the store the retry
recognises its own commit by its command id.

Successful ends that arrive together and look alike are decided once for all of them. Jobs that a
handler enqueues on completion are created in the commit that ends its own job.'''
D[E+'job_types']='''The registry of job types: which arguments of a type are secret.

A program that declares secrets writes one small record per type before it does anything else. A
caller that creates jobs of a type without knowing its function (the command line, another protocol)
goes by that record. The set of secret paths only grows: a path that was secret once is encrypted
until somebody deletes the record, so that an older program that starts later cannot expose it.'''
D[E+'claims']='''Claimed jobs that do not run here: released, deferred, or dropped.

A claimer may be gone when the answer to its claim arrives. Nothing has begun then, so the jobs are
released at once, without waiting for their lease and at no charge.

A job whose secrets cannot be decrypted because this process lacks the key is released too: the key
is missing here, the job may be fine. After a few releases nobody seems to have the key, and the job
is deferred, longer each time. The process stops claiming that type for a while, or it would take
every such job away from workers that can run it. A secret that fails with its own key is damaged,
here and everywhere: that is a permanent failure.

A job may ask to be discarded instead of waiting for room under its limit. Its limit then has a
small record, written before the first such job, so that nobody looks for them elsewhere. They are
dropped when a claim has passed them by; if the claimer dies first, the next claim does it.'''
D[E+'worker_reports']='''What a worker says about a job it holds, in a form that can be sent to a server. Pure.

A `JobCommand` names an actor and may do anything that the engine can do. A `Report` is less: it is
about one job, under the lease by which its sender holds it, and it does not say who speaks; the
receiver knows that. A report that arrives again after its answer was lost is recognised by the
event that it left in the history.'''
D[E+'enqueue']='''Enqueue jobs: a request becomes a change, and a conflict becomes an answer.

A unique job that meets another one is refused, dropped in favour of it, or put in its place, as the
caller chose. A request with an idempotency key that was used before is answered with the job of
then. Plain jobs (no key, secret or time of their own) are created from a prepared template, which
is checked and decided once for all calls with the same options. Jobs with keys have a queue of
their own, because they may have to wait for somebody's open transaction.

A bounded queue has a small record whose version every enqueuer moves: it reads the record, counts
the jobs, and commits the new ones together with the record's next version. If somebody else came
first, nothing is committed and the count is taken again.

A call with many jobs is several commits. When one fails, no further one begins, those under way are
awaited, and the error says which jobs are stored and which may be.'''
D[E+'caller_tx']='''Enqueue and complete jobs inside the caller's own transaction.

Everything is decided here before anything is written, and the store is asked nothing: a caller that
holds a transaction open must not wait for somebody who may be waiting for it. Jobs without keys
share one change, because each change costs a savepoint; a job with a key has its own, so that a
conflict concerns it alone.

A completion is decided on the job as it was claimed. If the job has moved since (its priority, a
cancel request), the transaction reports how it stands now, and the end is decided again.'''
D[E+'rerun']='''Run an ended job again: as a new job, or under the id it was known by.

No edge of the lifecycle leaves an end, so "again" is a new job that names the old one and says why.
A member of a workflow runs again on its own: its workflow has recorded its end for good.

OJS keeps the id of a dead letter that is retried. There the new job gets an alias: one record leads
from the first id to the newest job, a second one back from that job to the id that is shown. The
job and both records are one commit, so two concurrent retries cannot both create a job.'''
D[E+'cron']='''Schedule expressions: parse `0 9 * * 1`, `@daily` and `@every 5m`, and compute their slots.

A slot is an instant that an expression names in a time zone. Cron fields follow the clocks on the
wall: a local time that clocks skip is no slot, one that they show twice is a slot the first time.
Intervals know no clocks: their slots are equally far apart, from the moment the schedule was made.
A malformed expression is refused with the field that is wrong, so that a surface can point at it.'''
D[E+'schedules']='''Schedules: create, change, pause and fire them, on any number of servers at once.

A schedule is one small record whose `wake_at` is its next slot. Firing it is one commit: the new
jobs, the end of the previous slot's jobs where the overlap policy wants it, and the record's next
version. The id of a job follows from its schedule and slot, so a slot fires once, however many
servers see that it is due. A removed schedule keeps its record, which says who removed it and which
slot was answered last.'''
D[E+'workflow_spec']='''Workflow specs and what is stored of them. Pure.

    chain(fetch, [resize_small, resize_large], publish)
    batch([one, two, three], on_failure=alert)
    stages({"build": [compile], "deploy": [ship]}, gate=["deploy"])
    dag({"a": [x], "b": [y], "c": [z]}, after={"c": ["a", "b"]})

Jobs that start and end together are one step, however many they are: that makes ten thousand of
them cheap. Beside its lifecycle a workflow has one small record of its name, metadata and digest.
While the workflow is a draft, the record wakes to abort it when nobody finishes it; later it wakes
now and then, and goes when its workflow has gone.'''
D[E+'workflows']='''Workflows: create, control and query them.

A workflow is created in one commit where that fits, else as a draft in several. Anybody who asks
for it again under the same id finishes the draft: the ids of its jobs follow from the spec, so
chunks that are there already are recognised. Maintenance aborts a draft that nobody finishes.'''
D[E+'retention']='''Retention: seal events, prune ended jobs, delete ended workflows.

Maintenance seals new events every minute, a chunk per tick, so that later changes to them are
noticed; one of all processes on the store does it.

Pruning seals first and then deletes in bounded commits: a job goes only when all its events are
sealed, so the proof that it existed outlives it. Deleting a workflow erases what it was about and
keeps its history. What is still running or waits to be cancelled is cancelled on the way. If it
does not fit into one commit, the record by which people find the workflow goes last, so that an
interrupted deletion can be repeated.'''
D[E+'workers']='''Worker instances in the store: their histories, orphaned ones, and control messages.

A supervisor keeps its own journal, because it goes on while the database is down, and ships it here
in batches. Events that are stored already are skipped if they are equal, so a lost cursor costs
nothing but time. A supervisor whose workers somebody else declared lost is gone with its journal;
maintenance ends its orphaned instances as lost, else their histories would be kept for ever.

A control message (suspend, stop, restart, ...) is a small record. The supervisor that keeps the
instance carries it out and writes the answer into the record; the sender reads it there and deletes
the record.'''
D[E+'maintenance']='''Maintenance: apply what time alone changes, in batches.

Any number of processes may run it; the store hands each due item to one of them. It makes due jobs
available, times out runs, declares workers lost, fires schedules and wakes other records.

Everybody is given a grace period of one lease before anybody is declared lost after a gap in
maintenance (the database was down, the host stood still): nobody could renew a lease either. A
heartbeat record in the store shows whether leases were watched without a gap, and until when
everybody is trusted; a process that has just started learns it there. Only watched time uses up a
grace period. Processes of this host and boot that are gone need no grace.

When the clock was set back, waiting times and heartbeats that lie in what is now the future are
moved to the new clock, and the history says so.'''
D[E+'operator_actions']='''What people do to jobs, queues and limits: cancel, hold, move, pause, limit, in bulk or not.

Each action names its actor and a reason. Actions are values, so that one job and many are treated
alike. A bulk action walks from the newest job to the oldest in bounded batches: it never meets jobs
that it creates itself (a rerun), and an interrupted one can be started again. A dry run decides
exactly as the real one and commits nothing; only whether a job was run again already is left to the
real one.

The store's own row of a pause or limit holds only its present value, because every claim reads it.
Who changed it, when and why is in a small change log beside it.'''
D[E+'blockers']='''Why a job waits: every condition it must meet before it runs, with a verdict. Pure.

The claim checks the same conditions in the database. Here they are checked for people, including
what no claim asks: whether any worker would claim the job, and when it may start.'''
D[E+'queries']='''Queries: why a job is where it is, its timeline, jobs, queues and counts.

Everything is read from what is stored; nothing is changed and nothing is guessed. What nobody
recorded is answered with "unknown".'''
D[E+'feed']='''Deliver committed events in the order of the feed: to subscribers and to live listeners.

A subscriber has a cursor, a small record under its name, and misses nothing. Of many processes with
a subscriber of one name, one delivers at a time: it holds the record until an instant that it keeps
extending, and every step of the cursor is a compare-and-set. After a crash another process goes on
from the cursor, so an event may come twice, but never not at all. A subscriber that fails is
retried from the event it failed at, with growing pauses; the others do not notice.

A listener gets events from the moment it begins to listen. The feed is read once per process for
all of them, and nobody is waited for: a slow listener gets a gap instead.'''
D[E+'engine_sessions']='''Sessions of engines: programs elsewhere that jobs are pushed to, each under its own id.

One run of an engine's program has a run id. What it holds hangs on one worker row per run, trusted
like every worker. A small record under the engine's id names the present run and its connection; it
is moved by compare-and-set, so that of two programs under one id one is let in, on however many
servers.

An engine that reconnects in time with the same run id goes on with the jobs it presents; the rest
is lost.'''
D[E+'access']='''API keys: scopes, tenants, queues and an expiry, and who is calling.

A key is shown once, when it is created. Stored is a small record with a digest of its secret part;
that part is 256 random bits, so one round of SHA-256 is enough. Tenants and queues are patterns as
in file names. Revoked keys stay on record: a store that ever had a key never again answers callers
without one.'''
D[E+'tracing']='''OpenTelemetry spans around enqueueing, for programs that trace.

OpenTelemetry is never imported here. A program that has not imported it, or has not set up a tracer
provider, pays for one look into `sys.modules`. Names follow the semantic conventions for messaging.'''
D[E+'engine']='''`Engine`: everything that can be asked of the jobs in one open store.'''
D[E+'ssrf_guard']='''The SSRF guard: which addresses may be connected to, and the POST that honours it.

Anybody who can register a webhook can make this process connect anywhere, and it runs inside the
network: databases, dashboards, the cloud's metadata service. So a host name is resolved, every
address it has is checked, and only a checked address is connected to. A name that resolves to
something else a moment later changes nothing. Only public addresses are allowed, except for
networks that the operator trusts.

`HttpSender` posts to such an address with the standard library and reads only the status. The
certificate is verified for the host name, and redirects are not followed.'''
D[E+'webhooks']='''Webhooks: who wants to be told of which events, and the delivery of each.

`WebhookSubscriptions` creates, changes and removes webhooks, on any number of servers at once, and
turns events of the feed into deliveries. A webhook and a delivery are small records; the same event
makes the same delivery, whoever makes it.

Maintenance hands a due delivery to one process. That process takes it for as long as one try can
last, by the version of its record, and sends it in a task of its own: nothing in the engine waits
for somebody's server. If the process dies, the delivery is due again; so it may arrive twice, under
the same id. A webhook that never answers is disabled.'''
D[E+'verify']='''Verify a store: is everything as it was written, and does it fit together?

    verification = Verification(store)
    async for finding in verification.findings(): ...

Every history is replayed and compared with its record (`records`: jobs, workflows, steps, worker
instances, leases). The feed is compared with the histories, seals with leaves, and leaves with the
feed (`feed`). Step counters and queue counts are compared with a recount (`counts`). It only reads,
through the protocol that all stores share. It needs the same memory for a thousand jobs and for
millions. It may run beside writers and retention: what moved or was deleted while it looked is read
again before it becomes a finding. Start reading at `verification`.'''
D[E+'verify.records']='''Compare records with their histories: jobs, leases, workflows, steps and worker instances.

A finding says in one sentence what is wrong and where. A record that cannot be read is named and
skipped. Retention deletes a record and its history in one commit; a record that is gone on the
second look was not wrong.'''
D[E+'verify.feed']='''Compare the feed with the histories, and the seals with the feed.

Two long lists are compared without keeping either: every event is hashed and the hashes are summed,
which does not depend on the order. The hash has a random key per run, so nobody can prepare two
different lists with equal sums. Sums are kept per bucket of records: a difference leads to a few
records instead of all.

Seals are checked link by link while their leaves pass by. A leaf stays when its event is pruned, so
every root can be recomputed for ever; events that still exist are compared with their leaves.'''
D[E+'verify.counts']='''Compare a store's counts with a recount, while the store may change all the time.

Queue counts are read between two looks at the end of the feed, and must be true at one of the
positions between: histories give the jobs at the first position, and events lead on from there.
Pruned jobs leave no event, so a queue that differs is counted once more by itself before it becomes
a finding: it holds at least the jobs that stayed in it, and at most those plus the ones that came.

A step's counters are read after a look at the end of the feed. What happened to a job before that
is in them, what happened later may be; so they must lie within what its jobs can add up to. Counters
of an ended workflow may include pruned jobs; the feed must then lack that many events.'''
D[E+'verify.verification']='''Run all checks over a store: records first, because they can be named, then what builds on them.'''
D[E+'doctor']='''Find out what is wrong with a store, its surroundings and its workers. Changes nothing.

Checks run from the outside to the inside, in the order in which they are worth reading: Python and
libraries, the address, the database, keys, workers, maintenance, pauses, webhooks, retention. What
cannot be reached is not waited for, and what lies behind it is not checked.

A store may have millions of jobs, so waiting jobs are sampled: the newest of each queue, so that
one long queue does not hide the others. `startup_warnings` is the small part that every program
logs when it starts; it never keeps a program from starting.'''
N[E+'doctor']='package becomes one module: the folder detent/engine/doctor goes. doctor.fleet uses `marking.read` and `schedule.read` as module attributes; examination uses fleet.*, keys.*, steering.*, surroundings.* as module attributes'
N[E+'operator_actions']='operators.py uses `switches.read`, `switches.changed`, ... as attributes of the sibling module (from detent.engine import switches); so does queries.py'
N[E+'workflows']='workflows.py uses `from detent.engine import keeping` (attributes); surfaces/jobnik/desk.py has `from detent.engine import keeping as flows`; app/shapes.py, surfaces/ojs/flows.py and ordering.py use `shaping.*` as attributes'
N[E+'enqueue']='app/asking.py uses `moulds.mould_of` via `from detent.engine import moulds`, because it has a `mould_of` of its own: rename one (see rename.json)'
N[E+'schedules']='app/schedules.py imports `from detent.engine import schedules as engine`; doctor.fleet uses `schedule.read`'
N[E+'secrets']='secrets.py defines `Path` (a tuple), keyring.py imports pathlib.Path: rename.json has the collision'
N[E+'verify.records']='verification.py imports the modules counts, feed, flows, records, workers and uses attributes (records.misfits, flows.misfits, workers.misfits, records.lives, workers.lives): renamed apart in rename.json'
N[E+'verify.counts']='_PAGE, _ATTEMPTS, _PAUSE_S are assigned as tuples in lanes and counts with different values: collisions in rename.json'
N[E+'webhooks']='tests import `from detent.engine import delivering` etc. and set attributes; monkeypatched names must follow'
D['detent.text']='''Format instants, durations and counts for people. Pure.'''
N['detent.text']='new top-level module (from engine/telling.py): needs a place in pyproject.toml, importlinter layers: "errors | host | log_throttle | text"'
D['detent.log_throttle']='''Log a failure that repeats: when it begins, once a minute, and when it is over.

A store that is unreachable for a night is tried every second. One line per try would bury
everything else, and fill the disk that may be what is wrong.'''
N['detent.log_throttle']='pyproject.toml: importlinter layer "complaining" is renamed'
D['detent.host']='''Processes of this host: identify them, tell whether one is gone, list and signal sessions.

A pid is reused, and means another process in another container. So a process is identified by host,
boot, the namespace its pid is seen in, pid and start time together; worker rows, the journals of
supervisors and the guardian all take these values from here.

Only the standard library is used, and nothing else of Detent: the guardian imports this file bare.
Linux reads `/proc`; elsewhere (macOS) `ps` is asked, which is slower and coarser.'''
N['detent.host']='stays: runtime/process/guardian.py imports this file by path ("host", two folders up), and engine.workers/maintenance import it, so it cannot move to runtime (layers)'
D['detent.extras']=None
D['detent.supervisor']=None
