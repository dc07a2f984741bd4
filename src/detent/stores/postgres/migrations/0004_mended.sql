-- What came to light in use. Code that knows nothing of it goes on beside.
-- min_code: 2

-- Whoever asks about some lanes must not walk over the tallies of all.
CREATE INDEX tallies_of_lane ON detent.tallies (lane);

-- Who was served last, and who so long ago that nobody needs to remember.
CREATE INDEX served_turn ON detent.served (turn);

-- The lines of all jobs get one order that no line that is committed late falls out of: the number a
-- line draws when it is written says nothing about that.

-- Lines that are here already, and those only, have no transaction.
ALTER TABLE detent.logs ADD COLUMN xid xid8;

ALTER TABLE detent.logs ALTER COLUMN xid SET DEFAULT pg_current_xact_id();

CREATE INDEX logs_in_transaction ON detent.logs (xid);

-- What the sequencer needs to know of a line, in the words it has for events.
CREATE VIEW detent.lines AS SELECT pos AS seq, xid FROM detent.logs;

-- The order, as far as anybody has asked for it. A line that went while its position was given leaves
-- an entry here, which nobody is shown.
CREATE TABLE detent.tail (
    pos bigint PRIMARY KEY,
    line bigint NOT NULL UNIQUE
);

-- How far the sequencer is with lines; its columns are those of `sequencer`.
CREATE TABLE detent.tail_sequencer (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    snapshot pg_snapshot NOT NULL,
    target pg_snapshot,
    after bigint NOT NULL DEFAULT 0,
    pos bigint NOT NULL DEFAULT 0,
    floor bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);

-- Nobody writes lines while this runs: the table is locked since it got its new column.
INSERT INTO detent.tail (pos, line) SELECT pos, pos FROM detent.logs;

INSERT INTO detent.tail_sequencer (snapshot, pos)
SELECT pg_current_snapshot(), coalesce(max(pos), 0) FROM detent.tail;

-- The setting of retention is a word that anybody can say who may delete. What it lets go is looked at:
-- a record must have ended before it goes, and gone before its events go, and they must be sealed.
CREATE FUNCTION detent.need_end() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'TRUNCATE' OR OLD.ended_at IS NULL THEN
        RAISE EXCEPTION 'a record is never deleted before it has ended';
    END IF;
    RETURN OLD;
END
$$;

CREATE FUNCTION detent.need_end_of_workflow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM detent.workflows AS w
        WHERE w.tenant = OLD.tenant AND w.id = OLD.workflow AND w.ended_at IS NULL
    ) THEN
        RAISE EXCEPTION 'a step is never deleted before its workflow has ended';
    END IF;
    RETURN OLD;
END
$$;

CREATE OR REPLACE FUNCTION detent.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'DELETE' OR current_setting('detent.retention', true) IS DISTINCT FROM 'on' THEN
        RAISE EXCEPTION 'an event is never changed, and deleted by retention only';
    END IF;
    IF EXISTS (SELECT FROM detent.jobs AS j WHERE j.tenant = OLD.tenant AND j.id = OLD.record)
        OR EXISTS (SELECT FROM detent.workflows AS w WHERE w.tenant = OLD.tenant AND w.id = OLD.record)
        OR EXISTS (SELECT FROM detent.steps AS s WHERE s.tenant = OLD.tenant AND s.id = OLD.record)
        OR NOT EXISTS (
            SELECT FROM detent.feed AS f
            WHERE f.tenant = OLD.tenant AND f.record = OLD.record AND f.version = OLD.version
                AND f.pos <= (SELECT max(pos) FROM detent.leaves)
        )
    THEN
        RAISE EXCEPTION 'an event is never deleted before its record, nor before it is sealed';
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER jobs_live_on BEFORE DELETE ON detent.jobs
FOR EACH ROW EXECUTE FUNCTION detent.need_end();

CREATE TRIGGER jobs_never_go BEFORE TRUNCATE ON detent.jobs
FOR EACH STATEMENT EXECUTE FUNCTION detent.need_end();

CREATE TRIGGER workflows_live_on BEFORE DELETE ON detent.workflows
FOR EACH ROW EXECUTE FUNCTION detent.need_end();

CREATE TRIGGER steps_live_on BEFORE DELETE ON detent.steps
FOR EACH ROW EXECUTE FUNCTION detent.need_end_of_workflow();
