-- What came to light in use. Code that knows nothing of it goes on beside.
-- min_code: 2

-- Whoever asks about some lanes must not walk over the tallies of all.
CREATE INDEX tallies_of_lane ON detent.tallies (lane);

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
