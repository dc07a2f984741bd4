-- The tables of version 1. Words in double braces are written by legality.py from the lifecycle
-- machines when the migration is applied; everything else stands here. Texts compare by code point,
-- as they do in Python: an order that depends on the server's language would be nobody's order.
-- min_code: 1

CREATE SCHEMA IF NOT EXISTS detent;

CREATE TABLE detent.meta (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);

-- What a claim chooses by: every job stands in one lane, and a lane that is closed, unwanted or
-- empty costs a claim nothing. Lanes are found by the digest of their names, which may be long; they
-- never change and never go, so that every process may remember them.
CREATE TABLE detent.lanes (
    lane int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    digest bytea NOT NULL UNIQUE,
    tenant text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    profile text COLLATE "C" NOT NULL,
    delivery text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL
);

CREATE INDEX lanes_of_queue ON detent.lanes (tenant, queue);

CREATE INDEX lanes_of_key ON detent.lanes (tenant, key) WHERE key <> '';

-- The narrow head of a job: the lifecycle record in its own order, then what the store keeps about
-- it. `gated`, `handed_until`, `wake_at` and the flags at the end move without a version.
CREATE TABLE detent.jobs (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    state text COLLATE "C" NOT NULL CHECK (state = ANY (ARRAY[{{job_states}}])),
    profile text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    priority bigint NOT NULL,
    delivery text COLLATE "C" NOT NULL,
    allowed bigint NOT NULL,
    losses_allowed bigint NOT NULL,
    created_at bigint NOT NULL,
    state_at bigint NOT NULL,
    last_at bigint NOT NULL,
    previous text COLLATE "C",
    place bigint,
    held boolean NOT NULL,
    attempt bigint NOT NULL,
    failures bigint NOT NULL,
    losses bigint NOT NULL,
    handed_back bigint NOT NULL,
    run_at bigint,
    expires_at bigint,
    available_us bigint,
    pending_us bigint,
    active_us bigint,
    lease text COLLATE "C",
    holder text COLLATE "C",
    wire boolean NOT NULL,
    lease_us bigint,
    enqueued_at bigint,
    ready_at bigint,
    activated_at bigint,
    claimed_at bigint,
    started_at bigint,
    received_at bigint,
    start_us bigint,
    ended_at bigint,
    erased_at bigint,
    cancel_at bigint,
    force_at bigint,
    cause text COLLATE "C",
    returned_by text COLLATE "C",
    delay_us bigint,
    rerun_of text COLLATE "C",
    workflow text COLLATE "C",
    step text COLLATE "C",
    wake_at bigint,
    lane int NOT NULL,
    fingerprint text COLLATE "C",
    handed_until bigint,
    gated boolean NOT NULL DEFAULT false,
    has_result boolean NOT NULL DEFAULT false,
    has_failures boolean NOT NULL DEFAULT false,
    has_note boolean NOT NULL DEFAULT false,
    has_checkpoint boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, id),
    CHECK ((lease IS NOT NULL) = (state = ANY (ARRAY[{{job_in_hands}}]))),
    CHECK ((ended_at IS NOT NULL) = (state = ANY (ARRAY[{{job_ended}}])))
) WITH (
    fillfactor = 85,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 1
);

-- All of it ascends, so that "after this position" is one range of the index: its dead entries stay
-- while anybody's snapshot is older than they are, and a claim that remembers how far it was last
-- does not walk over them. Unlike its negative, the complement of every priority is a number.
CREATE INDEX jobs_claimable ON detent.jobs (lane, (~priority), place, id)
    WHERE state = 'available' AND NOT held AND NOT gated;

CREATE INDEX jobs_waking ON detent.jobs (wake_at, tenant, id) WHERE wake_at IS NOT NULL;

CREATE INDEX jobs_holding ON detent.jobs (holder, lease) WHERE lease IS NOT NULL;

-- The state stands in it, so that ended jobs of a fingerprint cost nothing to those that live.
CREATE INDEX jobs_unique ON detent.jobs (tenant, fingerprint, state, created_at)
    WHERE fingerprint IS NOT NULL;

CREATE INDEX jobs_of_workflow ON detent.jobs (tenant, workflow, id) WHERE workflow IS NOT NULL;

CREATE INDEX jobs_parked_of_step ON detent.jobs (tenant, step, gated, priority DESC, place, id)
    WHERE step IS NOT NULL AND state = ANY (ARRAY[{{job_parked}}]);

-- Few jobs are in these states, and those who look for them must not walk past all others.
CREATE INDEX jobs_rare ON detent.jobs (tenant, state, id)
    WHERE state = ANY (ARRAY[{{job_rare}}]);

CREATE INDEX jobs_ended ON detent.jobs (state, ended_at, tenant, id) WHERE ended_at IS NOT NULL;

CREATE TABLE detent.bodies (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    payload text NOT NULL,
    meta text NOT NULL,
    tags text,
    retry text,
    schema text,
    key text COLLATE "C",
    PRIMARY KEY (tenant, id)
);

CREATE TABLE detent.tags (
    tenant text COLLATE "C" NOT NULL,
    tag text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL
);

-- By the digest of the tag, which may be longer than an index takes.
CREATE INDEX tags_of_tenant ON detent.tags (tenant, md5(tag), id);

CREATE INDEX tags_of_job ON detent.tags (tenant, id);

CREATE TABLE detent.notes (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    at bigint NOT NULL,
    attempt bigint NOT NULL,
    percent bigint,
    text text NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE TABLE detent.checkpoints (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    checkpoint text NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE TABLE detent.results (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    result text NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE TABLE detent.failures (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    at bigint NOT NULL,
    code text NOT NULL,
    message text NOT NULL,
    type text NOT NULL,
    details text,
    backtrace text
);

CREATE INDEX failures_of_job ON detent.failures (tenant, id, number);

-- One row per job that is held over the wire; renewing it touches neither the job nor its indexes.
CREATE TABLE detent.leases (
    lease text COLLATE "C" PRIMARY KEY,
    until bigint NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL
) WITH (fillfactor = 50);

-- `lost` is 1 while jobs may be left in its hands, and 2 once none are: nobody looks there again.
CREATE TABLE detent.workers (
    id text COLLATE "C" PRIMARY KEY,
    alive_until bigint NOT NULL,
    lost smallint NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX workers_lost ON detent.workers (id) WHERE lost = 1;

-- Those that are gone stay for good: whoever looks for the overdue must not walk over them.
CREATE INDEX workers_trusted ON detent.workers (id) WHERE lost = 0;

CREATE TABLE detent.gates (
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    closed boolean NOT NULL,
    opened_at bigint,
    queue_deleted boolean NOT NULL,
    PRIMARY KEY (tenant, kind, name)
);

CREATE TABLE detent.limits (
    tenant text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    concurrency bigint,
    rate bigint,
    period_us bigint NOT NULL,
    spacing_us bigint,
    period_at bigint,
    starts bigint NOT NULL DEFAULT 0,
    last_at bigint,
    PRIMARY KEY (tenant, kind, name)
) WITH (fillfactor = 50);

-- Whose turn it was, and when, where queues or keys take turns.
CREATE TABLE detent.served (
    tenant text COLLATE "C" NOT NULL,
    fair text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    turn bigint NOT NULL,
    PRIMARY KEY (tenant, fair, name)
) WITH (fillfactor = 50);

-- Small records beside the jobs; only the version and the alarm of one are ours to read.
CREATE TABLE detent.records (
    kind text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    data text NOT NULL,
    wake_at bigint,
    command_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (kind, tenant, id)
);

CREATE INDEX records_waking ON detent.records (wake_at, kind, tenant, id) WHERE wake_at IS NOT NULL;

CREATE TABLE detent.workflows (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    ended_at bigint,
    record text NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX workflows_ended ON detent.workflows (ended_at, tenant, id) WHERE ended_at IS NOT NULL;

-- `tally` counts its jobs. `flips` while jobs may be left whose `gated` is from before it opened;
-- `swept` is 1 while jobs may be left that wait in vain, and 2 once none are.
CREATE TABLE detent.steps (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    record text NOT NULL,
    tally text,
    flips boolean NOT NULL DEFAULT false,
    swept smallint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE INDEX steps_of_workflow ON detent.steps (tenant, workflow);

CREATE INDEX steps_flipping ON detent.steps (tenant, id) WHERE flips;

CREATE INDEX steps_swept ON detent.steps (tenant, id) WHERE swept = 1;

CREATE TABLE detent.idempotency (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    expires_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, key)
);

CREATE INDEX idempotency_expiring ON detent.idempotency (expires_at);

CREATE INDEX idempotency_of_job ON detent.idempotency (tenant, id);

-- How many jobs more or less each transaction left in a lane and state. Nobody updates a row that
-- others update too; now and then all of them are replaced by their sums.
CREATE TABLE detent.tallies (
    lane int NOT NULL,
    state text COLLATE "C" NOT NULL,
    count bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Whether a lifecycle declares this move. A check with all of this in it would be read and prepared
-- anew for every statement that writes an event, which takes longer than the writing.
CREATE FUNCTION detent.is_declared(kind text, name text, source text, target text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN kind || ' ' || name || ' ' || coalesce(source, '-') || ' ' || coalesce(target, '-')
        = ANY (ARRAY[
            {{moves}}
        ]);
END
$$;

-- `seq` orders the events of one record by version, whoever wrote them; `xid` says in which
-- transaction an event was written, and so, together with a snapshot, whether it was visible.
CREATE TABLE detent.events (
    seq bigint GENERATED ALWAYS AS IDENTITY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    tenant text COLLATE "C" NOT NULL,
    record text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    at bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    source text COLLATE "C",
    target text COLLATE "C",
    actor text COLLATE "C" NOT NULL,
    actor_id text COLLATE "C" NOT NULL,
    command_id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    rest text,
    PRIMARY KEY (tenant, record, version),
    CONSTRAINT events_are_legal CHECK (detent.is_declared(kind, name, source, target))
);

CREATE INDEX events_in_transaction ON detent.events (xid);

CREATE UNIQUE INDEX events_one_end ON detent.events (tenant, record) WHERE {{ends}};

CREATE FUNCTION detent.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('detent.retention', true) = 'on' THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'an event is never changed, and deleted by retention only';
END
$$;

CREATE TRIGGER events_never_change BEFORE UPDATE OR DELETE ON detent.events
FOR EACH ROW EXECUTE FUNCTION detent.refuse_change();

CREATE TRIGGER events_never_go BEFORE TRUNCATE ON detent.events
FOR EACH STATEMENT EXECUTE FUNCTION detent.refuse_change();

-- All events in their one order. Positions are given by one sequencer at a time, so they have no
-- gaps and nothing is ever put in between.
CREATE TABLE detent.feed (
    pos bigint PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    record text COLLATE "C" NOT NULL,
    version bigint NOT NULL,
    UNIQUE (tenant, record, version)
);

-- How far the sequencer is: all that was visible in `snapshot` is in the feed; while `target` is
-- set, so is what became visible since, up to `after`. Events up to `floor` came here by a restore
-- from a server with other transaction numbers.
CREATE TABLE detent.sequencer (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    snapshot pg_snapshot NOT NULL,
    target pg_snapshot,
    after bigint NOT NULL DEFAULT 0,
    pos bigint NOT NULL DEFAULT 0,
    floor bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

INSERT INTO detent.sequencer (snapshot) VALUES ('1:1:');

CREATE TABLE detent.blocks (
    number bigint PRIMARY KEY,
    first_pos bigint NOT NULL,
    count bigint NOT NULL,
    root text NOT NULL,
    previous text NOT NULL,
    skip text NOT NULL
);

CREATE TABLE detent.leaves (
    pos bigint PRIMARY KEY,
    leaf bytea NOT NULL CHECK (length(leaf) = 32)
);

CREATE TABLE detent.cursors (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    last bigint NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50);

CREATE TABLE detent.logs (
    pos bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    cursor bigint NOT NULL,
    at bigint NOT NULL,
    level text NOT NULL,
    text text NOT NULL,
    UNIQUE (tenant, id, cursor)
);

-- Everything a reader is shown about a job, the columns of the lifecycle record first.
CREATE VIEW detent.stored AS
SELECT
    j.tenant, j.id, j.version, j.state, j.profile, j.queue, j.priority, j.delivery, j.allowed,
    j.losses_allowed, j.created_at, j.state_at, j.last_at, j.previous, j.place, j.held, j.attempt,
    j.failures, j.losses, j.handed_back, j.run_at, j.expires_at, j.available_us, j.pending_us,
    j.active_us, j.lease, j.holder, j.wire, j.lease_us, j.enqueued_at, j.ready_at, j.activated_at,
    j.claimed_at, j.started_at, j.received_at, j.start_us, j.ended_at, j.erased_at, j.cancel_at,
    j.force_at, j.cause, j.returned_by, j.delay_us, j.rerun_of, j.workflow, j.step, j.wake_at,
    b.type, b.payload, b.meta, b.tags, b.retry, b.schema, b.key,
    CASE WHEN j.has_result THEN (
        SELECT r.result FROM detent.results AS r WHERE r.tenant = j.tenant AND r.id = j.id
    ) END AS result,
    CASE WHEN j.has_failures THEN (
        SELECT json_agg(
            json_build_array(
                f.attempt, f.at, f.code, f.message, f.type, f.details, f.backtrace
            ) ORDER BY f.number
        )::text
        FROM detent.failures AS f WHERE f.tenant = j.tenant AND f.id = j.id
    ) END AS errors,
    CASE WHEN j.has_note THEN (
        SELECT json_build_array(n.at, n.attempt, n.percent, n.text)::text
        FROM detent.notes AS n WHERE n.tenant = j.tenant AND n.id = j.id
    ) END AS note,
    CASE WHEN j.has_checkpoint THEN (
        SELECT c.checkpoint FROM detent.checkpoints AS c
        WHERE c.tenant = j.tenant AND c.id = j.id
    ) END AS checkpoint
FROM detent.jobs AS j
JOIN detent.bodies AS b ON b.tenant = j.tenant AND b.id = j.id;
