-- Who a worker instance is, how its end is known, and what happened to it. Code that knows nothing of
-- it goes on beside.
-- min_code: 2

ALTER TABLE detent.workers
    ADD COLUMN who text,
    ADD COLUMN state text NOT NULL DEFAULT '',
    ADD COLUMN beat_at bigint NOT NULL DEFAULT 0,
    ADD COLUMN ended_at bigint,
    ADD COLUMN death text;

UPDATE detent.workers SET ended_at = alive_until WHERE lost <> 0;

CREATE INDEX workers_ended ON detent.workers (ended_at, id) WHERE ended_at IS NOT NULL;

-- The head of an instance's history: the whole record, beside what statements ask about.
CREATE TABLE detent.instances (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    slot text COLLATE "C" NOT NULL,
    version bigint NOT NULL CHECK (version > 0),
    state text COLLATE "C" NOT NULL CHECK (state = ANY (ARRAY[{{worker_states}}])),
    ended_at bigint,
    record text NOT NULL,
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 70);

CREATE INDEX instances_of_slot ON detent.instances (tenant, slot, id);

CREATE INDEX instances_ended ON detent.instances (ended_at, tenant, id) WHERE ended_at IS NOT NULL;

CREATE TRIGGER instances_live_on BEFORE DELETE ON detent.instances
FOR EACH ROW EXECUTE FUNCTION detent.need_end();

CREATE FUNCTION detent.refuse_change_of_worker() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM detent.instances AS i WHERE i.tenant = OLD.tenant AND i.id = OLD.record
    ) THEN
        RAISE EXCEPTION 'an event is never deleted before its record, nor before it is sealed';
    END IF;
    RETURN OLD;
END
$$;

CREATE TRIGGER events_of_workers_never_change BEFORE DELETE ON detent.events
FOR EACH ROW WHEN (OLD.kind = 'worker') EXECUTE FUNCTION detent.refuse_change_of_worker();
