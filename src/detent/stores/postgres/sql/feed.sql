-- The one order of all events, and that of all log lines. Something belongs to the next stretch when it
-- is visible now and was not in the snapshot of the stretch before: its transaction began later, or was
-- still open then. So nothing that commits late is skipped, and nobody's open transaction holds it up.

-- part: foreign
-- What can be seen was written by a transaction that had begun; what was written by one that is still
-- to come was brought here by a restore from a server that had counted further. All that came by the one
-- before stays above our own numbers for years, so only the lowest are looked at: whatever else came since
-- then is found among them, or when our own numbers have come as far as its own.
EXISTS (
    SELECT FROM (
        SELECT e.seq FROM detent.{{apart}} AS e
        WHERE e.xid >= pg_snapshot_xmax(pg_current_snapshot()) ORDER BY e.xid LIMIT 100
    ) AS e WHERE e.seq > last.floor
)

-- part: last
last AS MATERIALIZED (
    SELECT snapshot, coalesce(target, pg_current_snapshot()) AS target,
        coalesce(target, snapshot) AS seen, after, pos, floor
    FROM detent.{{apart}} FOR UPDATE
)

-- part: fresh
fresh AS MATERIALIZED (
    -- Whoever waited for the lock looks with older eyes than the one who had it.
    SELECT last.* FROM last
    WHERE pg_snapshot_xmax(pg_current_snapshot()) >= pg_snapshot_xmax(last.seen)
        AND NOT {{foreign {{apart}}}}
        AND NOT EXISTS (
            SELECT FROM pg_snapshot_xip(pg_current_snapshot()) AS open (xid)
            WHERE pg_visible_in_snapshot(open.xid, last.seen)
        )
)

-- part: newly
(
    SELECT e.* FROM fresh JOIN detent.{{apart}} AS e
        ON e.xid >= pg_snapshot_xmax(fresh.snapshot) AND e.xid < pg_snapshot_xmax(fresh.target)
    UNION ALL
    SELECT e.* FROM fresh CROSS JOIN pg_snapshot_xip(fresh.snapshot) AS open (xid)
    CROSS JOIN LATERAL (SELECT * FROM detent.{{apart}} AS e WHERE e.xid = open.xid OFFSET 0) AS e
) AS e CROSS JOIN fresh
WHERE e.seq > fresh.after AND e.seq > fresh.floor AND pg_visible_in_snapshot(e.xid, fresh.target)
ORDER BY e.seq LIMIT $most::bigint

-- part: kept
many AS MATERIALIZED (
    SELECT count(*) AS count, max(seq) AS seq FROM news
), kept AS (
    UPDATE detent.{{apart}} AS s SET
        snapshot = CASE WHEN many.count < $most::bigint THEN fresh.target ELSE s.snapshot END,
        target = CASE WHEN many.count < $most::bigint THEN NULL ELSE fresh.target END,
        after = CASE WHEN many.count < $most::bigint THEN 0 ELSE many.seq END,
        pos = coalesce((SELECT max(pos) FROM fed), s.pos)
    FROM fresh, many WHERE many.count > 0 OR s.target IS NOT NULL
)

-- part: done
SELECT (SELECT count FROM many)::bigint AS count, EXISTS (SELECT FROM fresh) AS is_fresh,
    pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(last.seen)
        OR {{foreign {{apart}}}} AS is_behind
FROM last

-- part: behind
WHERE pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(snapshot)
    OR {{foreign {{apart}}}} FOR UPDATE

-- part: caught_up
snapshot = pg_current_snapshot(),
target = NULL,
after = 0,
pos = coalesce((SELECT max(pos) FROM fed), s.pos),
floor = coalesce((
    SELECT max(e.seq) FROM detent.{{apart}} AS e
    WHERE e.xid >= pg_snapshot_xmax(pg_current_snapshot())
), 0)

-- name: sequence_events
WITH {{last sequencer}}, {{fresh events}}, news AS MATERIALIZED (
    SELECT e.seq, e.tenant, e.record, e.version FROM {{newly events}}
), fed AS (
    INSERT INTO detent.feed (pos, tenant, record, version)
    SELECT fresh.pos + row_number() OVER (ORDER BY news.seq), tenant, record, version
    FROM news CROSS JOIN fresh RETURNING pos
), {{kept sequencer}}
{{done events}}

-- name: sequence_lines
-- A line keeps its own number unless others that have a higher one were seen already: so positions that
-- were read before there was a sequencer for lines can still be gone on from.
WITH {{last tail_sequencer}}, {{fresh lines}}, news AS MATERIALIZED (
    SELECT e.seq FROM {{newly lines}}
), fed AS (
    INSERT INTO detent.tail (pos, line)
    SELECT greatest(fresh.pos + row_number() OVER (ORDER BY news.seq), news.seq), news.seq
    FROM news CROSS JOIN fresh RETURNING pos
), {{kept tail_sequencer}}
{{done lines}}

-- name: restored_events
WITH last AS MATERIALIZED (
    SELECT pos FROM detent.sequencer AS last {{behind events}}
), news AS MATERIALIZED (
    SELECT e.seq, e.tenant, e.record, e.version FROM detent.events AS e CROSS JOIN last
    WHERE NOT EXISTS (
        SELECT FROM detent.feed AS f
        WHERE f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
    )
), fed AS (
    INSERT INTO detent.feed (pos, tenant, record, version)
    SELECT last.pos + row_number() OVER (ORDER BY news.seq), tenant, record, version
    FROM news CROSS JOIN last RETURNING pos
)
UPDATE detent.sequencer AS s SET {{caught_up events}} FROM last

-- name: restored_lines
WITH last AS MATERIALIZED (
    SELECT pos FROM detent.tail_sequencer AS last {{behind lines}}
), news AS MATERIALIZED (
    SELECT e.seq FROM detent.lines AS e CROSS JOIN last
    WHERE NOT EXISTS (SELECT FROM detent.tail AS t WHERE t.line = e.seq)
), fed AS (
    INSERT INTO detent.tail (pos, line)
    SELECT greatest(last.pos + row_number() OVER (ORDER BY news.seq), news.seq), news.seq
    FROM news CROSS JOIN last RETURNING pos
)
UPDATE detent.tail_sequencer AS s SET {{caught_up lines}} FROM last

-- name: feed
SELECT f.pos, {{event_of_e}} FROM detent.feed AS f
JOIN detent.events AS e
    ON e.tenant = f.tenant AND e.record = f.record AND e.version = f.version
WHERE f.pos > $after::bigint ORDER BY f.pos LIMIT $most::bigint

-- name: blocks
SELECT number, first_pos, count, root, previous, skip FROM detent.blocks
WHERE number > $after::bigint ORDER BY number LIMIT $most::bigint

-- name: block_last
SELECT number, first_pos, count, root, previous, skip FROM detent.blocks
ORDER BY number DESC LIMIT 1

-- name: block
SELECT number, first_pos, count, root, previous, skip FROM detent.blocks WHERE number = $number

-- name: block_insert
WITH sealed AS (
    INSERT INTO detent.blocks (number, first_pos, count, root, previous, skip)
    VALUES ($number, $first_pos, $count, $root, $previous, $skip)
    ON CONFLICT DO NOTHING RETURNING number
), kept AS (
    INSERT INTO detent.leaves (pos, leaf)
    SELECT told.pos, told.leaf FROM sealed
    CROSS JOIN unnest($positions::bigint[], $leaves::bytea[]) AS told (pos, leaf)
)
SELECT number FROM sealed
