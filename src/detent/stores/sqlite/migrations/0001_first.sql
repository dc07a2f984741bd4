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
    wake_at INTEGER,
    is_unique INTEGER NOT NULL DEFAULT 0,
    CHECK ((lease IS NOT NULL) = ({{job_in_hands}})),
    CHECK ((ended_at IS NOT NULL) = ({{job_ended}}))
);

CREATE UNIQUE INDEX detent_jobs_key ON detent_jobs (tenant, id);

-- A claim walks lanes: the jobs of one queue, type and profile, best first. Types and profiles that
-- a worker does not take, and those behind a closed gate, are whole lanes that it never touches.
CREATE INDEX detent_jobs_claimable
    ON detent_jobs (tenant, queue, type, profile, priority DESC, place, id, expires_at)
    WHERE state = 'available' AND held = 0 AND delivery = 'pull';

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

CREATE TABLE detent_results (
    seq INTEGER PRIMARY KEY REFERENCES detent_jobs (seq),
    result TEXT NOT NULL
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
    j.wake_at, j.type, b.payload, b.meta, b.tags, b.retry, b.schema, r.result,
    j.is_unique
FROM detent_jobs AS j
JOIN detent_bodies AS b ON b.seq = j.seq
LEFT JOIN detent_results AS r ON r.seq = j.seq;

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

-- Jobs of lost workers are due whatever their wake_at says, so their soft lock needs a row.
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

-- How many jobs of a lane are in a state, to the job. A claim finds its lanes here.
CREATE TABLE detent_counters (
    tenant TEXT NOT NULL,
    queue TEXT NOT NULL,
    state TEXT NOT NULL,
    type TEXT NOT NULL,
    profile TEXT NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (tenant, queue, state, type, profile)
) WITHOUT ROWID;

-- The order of the rows is the feed. Nothing is ever deleted at the end, so it has no gaps.
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

CREATE TRIGGER detent_events_never_go BEFORE DELETE ON detent_events
BEGIN
    SELECT RAISE(ABORT, 'an event is never deleted');
END;

CREATE TABLE detent_blocks (
    number INTEGER PRIMARY KEY,
    first_pos INTEGER NOT NULL,
    count INTEGER NOT NULL,
    root TEXT NOT NULL,
    previous TEXT NOT NULL,
    skip TEXT NOT NULL
);

CREATE TABLE detent_leaves (
    pos INTEGER PRIMARY KEY REFERENCES detent_events (pos),
    leaf BLOB NOT NULL CHECK (length(leaf) = 32)
);

CREATE TABLE detent_logs (
    pos INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL REFERENCES detent_jobs (seq),
    cursor INTEGER NOT NULL,
    at INTEGER NOT NULL,
    level TEXT NOT NULL,
    text TEXT NOT NULL
);

CREATE UNIQUE INDEX detent_logs_of_job ON detent_logs (seq, cursor);
