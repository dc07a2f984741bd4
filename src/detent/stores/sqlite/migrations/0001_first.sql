-- The tables of version 1. Words in double braces are written by legality.py from the lifecycle
-- machines when the migration is applied; everything else stands here. Every name begins with
-- detent_, because people enqueue inside their own databases, whose names we cannot know.
-- min_code: 1

CREATE TABLE detent_meta (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) WITHOUT ROWID;

-- The narrow head of a job: what changes, and what a claim asks about. `seq` is the row number that
-- everything else of the job hangs on, so that no other table repeats its tenant and id.
CREATE TABLE detent_jobs (
    seq INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    state TEXT NOT NULL CHECK ({{job_states}}),
    profile TEXT NOT NULL,
    queue TEXT NOT NULL,
    priority INTEGER NOT NULL,
    delivery TEXT NOT NULL,
    allowed INTEGER NOT NULL,
    losses_allowed INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    state_at INTEGER NOT NULL,
    last_at INTEGER NOT NULL,
    previous TEXT,
    place INTEGER,
    held INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    losses INTEGER NOT NULL,
    handed_back INTEGER NOT NULL,
    run_at INTEGER,
    expires_at INTEGER,
    available_us INTEGER,
    pending_us INTEGER,
    active_us INTEGER,
    lease TEXT,
    holder TEXT,
    wire INTEGER NOT NULL,
    lease_us INTEGER,
    enqueued_at INTEGER,
    ready_at INTEGER,
    activated_at INTEGER,
    claimed_at INTEGER,
    started_at INTEGER,
    received_at INTEGER,
    start_us INTEGER,
    ended_at INTEGER,
    erased_at INTEGER,
    cancel_at INTEGER,
    force_at INTEGER,
    cause TEXT,
    returned_by TEXT,
    delay_us INTEGER,
    rerun_of TEXT,
    workflow TEXT,
    step TEXT,
    type TEXT NOT NULL,
    key TEXT CHECK (key <> ''),
    wake_at INTEGER,
    is_unique INTEGER NOT NULL DEFAULT 0,
    gated INTEGER NOT NULL DEFAULT 0,
    CHECK ((lease IS NOT NULL) = ({{job_in_hands}})),
    CHECK ((ended_at IS NOT NULL) = ({{job_ended}}))
);

CREATE UNIQUE INDEX detent_jobs_key ON detent_jobs (tenant, id);

-- A claim walks lanes: the jobs of one queue, delivery, type, profile and key, best first. What a
-- worker does not take, what stands behind a closed gate or under an exhausted limit are whole lanes
-- that it never touches. `gated` keeps the jobs of a closed step out; it is flipped in batches.
CREATE INDEX detent_jobs_claimable
    ON detent_jobs (tenant, queue, delivery, type, profile, key, priority DESC, place, id, expires_at)
    WHERE state = 'available' AND held = 0 AND gated = 0;

-- Which lanes have jobs that are available, to the job.
CREATE TABLE detent_lanes (
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    delivery TEXT NOT NULL,
    type TEXT NOT NULL,
    profile TEXT NOT NULL,
    key TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue, delivery, type, profile, key)
) WITHOUT ROWID;

-- How many jobs of a key are in hands: what its limit counts.
CREATE INDEX detent_jobs_held_of_key ON detent_jobs (tenant, key)
    WHERE key IS NOT NULL AND lease IS NOT NULL;

-- The waiting jobs of a step, best first: to be let in when it opens, or called off when it fails.
CREATE INDEX detent_jobs_parked_of_step ON detent_jobs (tenant, step, gated, priority DESC, place, id)
    WHERE step IS NOT NULL AND ({{job_parked}});

CREATE INDEX detent_jobs_of_workflow ON detent_jobs (tenant, workflow, id)
    WHERE workflow IS NOT NULL;

-- What an operator looks for most is rare beside all that is done.
CREATE INDEX detent_jobs_rare ON detent_jobs (tenant, state, id) WHERE {{job_rare}};

-- What may be forgotten, oldest end first.
CREATE INDEX detent_jobs_ended ON detent_jobs (state, ended_at, tenant, id)
    WHERE ended_at IS NOT NULL;

CREATE INDEX detent_jobs_waking ON detent_jobs (wake_at, tenant, id) WHERE wake_at IS NOT NULL;

CREATE INDEX detent_jobs_holding ON detent_jobs (holder, lease) WHERE lease IS NOT NULL;

CREATE TABLE detent_bodies (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    payload TEXT NOT NULL,
    meta TEXT NOT NULL,
    tags TEXT,
    retry TEXT,
    schema TEXT
);

CREATE TABLE detent_tags (
    tenant TEXT NOT NULL,
    tag TEXT NOT NULL,
    id TEXT NOT NULL,
    PRIMARY KEY (tenant, tag, id)
) WITHOUT ROWID;

CREATE TABLE detent_results (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    result TEXT NOT NULL
);

CREATE TABLE detent_checkpoints (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    checkpoint TEXT NOT NULL
);

CREATE TABLE detent_notes (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    at INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    percent INTEGER,
    text TEXT NOT NULL
);

CREATE TABLE detent_failures (
    row INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL REFERENCES detent_jobs (seq),
    attempt INTEGER NOT NULL,
    at INTEGER NOT NULL,
    code TEXT NOT NULL,
    message TEXT NOT NULL,
    type TEXT NOT NULL,
    details TEXT,
    backtrace TEXT
);

CREATE INDEX detent_failures_of_job ON detent_failures (seq);

-- The columns of the lifecycle record in its own order, then the rest of what a reader is shown.
CREATE VIEW detent_stored AS
SELECT
    j.seq, j.tenant, j.id, j.version, j.state, j.profile, j.queue, j.priority, j.delivery,
    j.allowed, j.losses_allowed, j.created_at, j.state_at, j.last_at, j.previous, j.place, j.held,
    j.attempt, j.failures, j.losses, j.handed_back, j.run_at, j.expires_at, j.available_us,
    j.pending_us, j.active_us, j.lease, j.holder, j.wire, j.lease_us, j.enqueued_at, j.ready_at,
    j.activated_at, j.claimed_at, j.started_at, j.received_at, j.start_us, j.ended_at, j.erased_at,
    j.cancel_at, j.force_at, j.cause, j.returned_by, j.delay_us, j.rerun_of, j.workflow, j.step,
    j.wake_at, j.type, b.payload, b.meta, b.tags, b.retry, b.schema, j.key, r.result,
    c.checkpoint, n.at AS note_at, n.attempt AS note_attempt, n.percent, n.text,
    j.is_unique
FROM detent_jobs AS j
JOIN detent_bodies AS b ON b.seq = j.seq
LEFT JOIN detent_results AS r ON r.seq = j.seq
LEFT JOIN detent_checkpoints AS c ON c.seq = j.seq
LEFT JOIN detent_notes AS n ON n.seq = j.seq;

-- One row per job that is held over the wire; renewing it touches neither the job nor its indexes.
CREATE TABLE detent_leases (
    lease TEXT PRIMARY KEY,
    until INTEGER NOT NULL,
    seq INTEGER NOT NULL REFERENCES detent_jobs (seq)
) WITHOUT ROWID;

-- `lost` is 1 while jobs may be left in its hands, and 2 once none are: nobody looks there again.
CREATE TABLE detent_workers (
    id TEXT PRIMARY KEY,
    alive_until INTEGER NOT NULL,
    lost INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX detent_workers_lost ON detent_workers (lost) WHERE lost = 1;

-- Those that are gone stay for good: whoever looks for the overdue must not walk over them.
CREATE INDEX detent_workers_trusted ON detent_workers (id) WHERE lost = 0;

-- Jobs of lost workers and of dead steps are due whatever their wake_at says, so their soft lock
-- needs a row.
CREATE TABLE detent_handed (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    until INTEGER NOT NULL
);

CREATE TABLE detent_gates (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    closed INTEGER NOT NULL,
    opened_at INTEGER,
    queue_deleted INTEGER NOT NULL,
    PRIMARY KEY (tenant, kind, name)
) WITHOUT ROWID;

-- A limit, and what of it is used. `period_at`, `starts` and `last_at` move with every claim under it.
CREATE TABLE detent_limits (
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    concurrency INTEGER,
    rate INTEGER,
    period_us INTEGER NOT NULL,
    spacing_us INTEGER,
    period_at INTEGER,
    starts INTEGER NOT NULL DEFAULT 0,
    last_at INTEGER,
    PRIMARY KEY (tenant, kind, name)
) WITHOUT ROWID;

-- Whose turn it was last, where claims are fair.
CREATE TABLE detent_served (
    tenant TEXT NOT NULL,
    fair TEXT NOT NULL,
    name TEXT NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (tenant, fair, name)
) WITHOUT ROWID;

CREATE INDEX detent_served_latest ON detent_served (tenant, fair, turn);

-- Small records of whatever kind; what is in them only the engine knows.
CREATE TABLE detent_records (
    kind TEXT NOT NULL,
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    data TEXT NOT NULL,
    wake_at INTEGER,
    command_id TEXT NOT NULL,
    PRIMARY KEY (kind, tenant, id)
) WITHOUT ROWID;

CREATE INDEX detent_records_waking ON detent_records (wake_at, kind, tenant, id)
    WHERE wake_at IS NOT NULL;

-- Workflows and steps whole, as JSON, beside the columns that statements ask about.
CREATE TABLE detent_workflows (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL CHECK ({{workflow_states}}),
    ended_at INTEGER,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE INDEX detent_workflows_ended ON detent_workflows (ended_at) WHERE ended_at IS NOT NULL;

-- `tally` counts its jobs. `flips` is 1 while jobs may be left whose `gated` is from before it opened;
-- `swept` is 1 while jobs may be left that wait in vain, and 2 once none are.
CREATE TABLE detent_steps (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    workflow TEXT NOT NULL,
    version INTEGER NOT NULL,
    state TEXT NOT NULL CHECK ({{step_states}}),
    record TEXT NOT NULL,
    tally TEXT,
    flips INTEGER NOT NULL DEFAULT 0,
    swept INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, workflow) REFERENCES detent_workflows (tenant, id)
) WITHOUT ROWID;

CREATE INDEX detent_steps_of_workflow ON detent_steps (tenant, workflow);

CREATE INDEX detent_steps_flipping ON detent_steps (flips) WHERE flips = 1;

CREATE INDEX detent_steps_swept ON detent_steps (swept) WHERE swept = 1;

-- The state stands here too, so that ended jobs of a fingerprint cost nothing to those that live.
CREATE TABLE detent_uniques (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    tenant TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL
);

CREATE INDEX detent_uniques_counting ON detent_uniques (tenant, fingerprint, state, created_at);

CREATE TABLE detent_idempotency (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    digest TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    seq INTEGER NOT NULL REFERENCES detent_jobs (seq),
    PRIMARY KEY (tenant, key)
) WITHOUT ROWID;

CREATE INDEX detent_idempotency_ending ON detent_idempotency (expires_at);

CREATE INDEX detent_idempotency_of_job ON detent_idempotency (seq);

-- How many jobs are in a state, to the job.
CREATE TABLE detent_counters (
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue, state)
) WITHOUT ROWID;

-- The order of the rows is the feed. What is not sealed is never deleted, so it ends without a gap.
CREATE TABLE detent_events (
    pos INTEGER PRIMARY KEY,
    tenant TEXT NOT NULL,
    record TEXT NOT NULL,
    version INTEGER NOT NULL,
    at INTEGER NOT NULL,
    name TEXT NOT NULL,
    source TEXT,
    target TEXT,
    actor TEXT NOT NULL,
    actor_id TEXT NOT NULL,
    command_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    rest TEXT
);

CREATE UNIQUE INDEX detent_events_key ON detent_events (tenant, record, version);

CREATE UNIQUE INDEX detent_events_one_end ON detent_events (tenant, record) WHERE {{ends}};

-- A chain of comparisons, hot moves first: a list after IN would be built anew for every row.
CREATE TRIGGER detent_events_are_legal BEFORE INSERT ON detent_events
WHEN NOT ({{moves}})
BEGIN
    SELECT RAISE(ABORT, 'no lifecycle declares this move');
END;

CREATE TRIGGER detent_events_never_change BEFORE UPDATE ON detent_events
BEGIN
    SELECT RAISE(ABORT, 'an event is never changed');
END;

-- Only retention deletes: the whole history of a record that is gone, and nothing that is not sealed.
CREATE TRIGGER detent_events_never_go BEFORE DELETE ON detent_events
WHEN OLD.pos > (SELECT coalesce(max(pos), 0) FROM detent_leaves)
    OR EXISTS (SELECT 1 FROM detent_jobs WHERE tenant = OLD.tenant AND id = OLD.record)
    OR EXISTS (SELECT 1 FROM detent_workflows WHERE tenant = OLD.tenant AND id = OLD.record)
    OR EXISTS (SELECT 1 FROM detent_steps WHERE tenant = OLD.tenant AND id = OLD.record)
BEGIN
    SELECT RAISE(ABORT, 'an event is never deleted before its record, nor before it is sealed');
END;

CREATE TABLE detent_blocks (
    number INTEGER PRIMARY KEY,
    first_pos INTEGER NOT NULL,
    count INTEGER NOT NULL,
    root TEXT NOT NULL,
    previous TEXT NOT NULL,
    skip TEXT NOT NULL
);

-- They outlive their events, so that a block can be checked after some of it was forgotten.
CREATE TABLE detent_leaves (
    pos INTEGER PRIMARY KEY,
    leaf BLOB NOT NULL CHECK (length(leaf) = 32)
);

CREATE TABLE detent_logs (
    pos INTEGER PRIMARY KEY AUTOINCREMENT,
    seq INTEGER NOT NULL REFERENCES detent_jobs (seq),
    cursor INTEGER NOT NULL,
    at INTEGER NOT NULL,
    level TEXT NOT NULL,
    text TEXT NOT NULL
);

CREATE UNIQUE INDEX detent_logs_of_job ON detent_logs (seq, cursor);
