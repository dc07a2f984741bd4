-- Who a worker instance is, how its end is known, and what happened to it. Code that knows nothing of
-- it goes on beside.
-- min_code: 1

ALTER TABLE detent_workers ADD COLUMN who TEXT;

ALTER TABLE detent_workers ADD COLUMN state TEXT NOT NULL DEFAULT '';

ALTER TABLE detent_workers ADD COLUMN beat_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE detent_workers ADD COLUMN ended_at INTEGER;

ALTER TABLE detent_workers ADD COLUMN death TEXT;

UPDATE detent_workers SET ended_at = alive_until WHERE lost <> 0;

CREATE INDEX detent_workers_ended ON detent_workers (ended_at, id) WHERE ended_at IS NOT NULL;

-- The head of an instance's history: the whole record, beside what statements ask about.
CREATE TABLE detent_instances (
    tenant TEXT NOT NULL,
    id TEXT NOT NULL,
    slot TEXT NOT NULL,
    version INTEGER NOT NULL CHECK (version > 0),
    state TEXT NOT NULL CHECK ({{worker_states}}),
    ended_at INTEGER,
    record TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE INDEX detent_instances_of_slot ON detent_instances (tenant, slot, id);

CREATE INDEX detent_instances_ended ON detent_instances (ended_at, tenant, id)
    WHERE ended_at IS NOT NULL;

DROP TRIGGER detent_events_never_go;

CREATE TRIGGER detent_events_never_go BEFORE DELETE ON detent_events
WHEN OLD.pos > (SELECT coalesce(max(pos), 0) FROM detent_leaves)
    OR EXISTS (SELECT 1 FROM detent_jobs WHERE tenant = OLD.tenant AND id = OLD.record)
    OR EXISTS (SELECT 1 FROM detent_workflows WHERE tenant = OLD.tenant AND id = OLD.record)
    OR EXISTS (SELECT 1 FROM detent_steps WHERE tenant = OLD.tenant AND id = OLD.record)
    OR EXISTS (SELECT 1 FROM detent_instances WHERE tenant = OLD.tenant AND id = OLD.record)
BEGIN
    SELECT RAISE(ABORT, 'an event is never deleted before its record, nor before it is sealed');
END;

CREATE TRIGGER detent_instances_live_on BEFORE DELETE ON detent_instances
WHEN OLD.ended_at IS NULL
BEGIN
    SELECT RAISE(ABORT, 'an instance is never deleted before it has ended');
END;
