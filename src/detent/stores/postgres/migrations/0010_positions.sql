-- Code before this forgot the events of workers and left where they had stood in the feed. Such a row
-- stands in the way of a worker of the same name: its event wants the same key, and the feed stops.
-- Nobody waits for this, old code neither: only rows are locked that nobody reads.
-- min_code: 2

DELETE FROM detent.feed AS f
WHERE NOT EXISTS (
    SELECT FROM detent.events AS e
    WHERE e.tenant = f.tenant AND e.record = f.record AND e.version = f.version
);

-- Where the name has come again already, an event has a row before it was given a position: it is the
-- row of the one before.
DELETE FROM detent.feed AS f USING detent.sequencer AS s, detent.events AS e
WHERE e.kind = 'worker' AND e.xid >= pg_snapshot_xmin(s.snapshot) AND e.seq > s.floor
    AND NOT pg_visible_in_snapshot(e.xid, s.snapshot)
    AND (s.target IS NULL OR e.seq > s.after OR NOT pg_visible_in_snapshot(e.xid, s.target))
    AND f.tenant = e.tenant AND f.record = e.record AND f.version = e.version;

-- Code before this may run on beside: from now on the positions go with the events, whoever forgets.
CREATE FUNCTION detent.forget_position() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM detent.feed AS f
    WHERE f.tenant = OLD.tenant AND f.record = OLD.record AND f.version = OLD.version;
    RETURN NULL;
END
$$;

CREATE TRIGGER positions_of_workers_go AFTER DELETE ON detent.events
FOR EACH ROW WHEN (OLD.kind = 'worker') EXECUTE FUNCTION detent.forget_position();
