-- The one order of all events. An event belongs to the next stretch of the feed when it is visible
-- now and was not in the snapshot of the stretch before: its transaction began later, or was still
-- open then. So nothing that commits late is skipped, and nobody's open transaction holds it up.

-- part: foreign
-- What can be seen was written by a transaction that had begun; an event of one that is still to come
-- was brought here by a restore from a server that had counted further.
EXISTS (
    SELECT FROM detent.events AS e WHERE e.xid >= pg_snapshot_xmax(pg_current_snapshot())
        AND e.seq > last.floor
)

-- name: sequence
WITH last AS MATERIALIZED (
    SELECT snapshot, coalesce(target, pg_current_snapshot()) AS target,
        coalesce(target, snapshot) AS seen, after, pos, floor
    FROM detent.sequencer FOR UPDATE
), fresh AS MATERIALIZED (
    -- Whoever waited for the lock looks with older eyes than the one who had it.
    SELECT last.* FROM last
    WHERE pg_snapshot_xmax(pg_current_snapshot()) >= pg_snapshot_xmax(last.seen)
        AND NOT {{foreign}}
        AND NOT EXISTS (
            SELECT FROM pg_snapshot_xip(pg_current_snapshot()) AS open (xid)
            WHERE pg_visible_in_snapshot(open.xid, last.seen)
        )
), news AS MATERIALIZED (
    SELECT e.seq, e.tenant, e.record, e.version FROM (
        SELECT e.* FROM fresh JOIN detent.events AS e ON e.xid >= pg_snapshot_xmax(fresh.snapshot)
        UNION ALL
        SELECT e.* FROM fresh CROSS JOIN pg_snapshot_xip(fresh.snapshot) AS open (xid)
        JOIN detent.events AS e ON e.xid = open.xid
    ) AS e CROSS JOIN fresh
    WHERE e.seq > fresh.after AND e.seq > fresh.floor
        AND pg_visible_in_snapshot(e.xid, fresh.target)
    ORDER BY e.seq LIMIT $most::bigint
), fed AS (
    INSERT INTO detent.feed (pos, tenant, record, version)
    SELECT fresh.pos + row_number() OVER (ORDER BY news.seq), tenant, record, version
    FROM news CROSS JOIN fresh
), many AS MATERIALIZED (
    SELECT count(*) AS count, max(seq) AS seq FROM news
), kept AS (
    UPDATE detent.sequencer AS s SET
        snapshot = CASE WHEN many.count < $most::bigint THEN fresh.target ELSE s.snapshot END,
        target = CASE WHEN many.count < $most::bigint THEN NULL ELSE fresh.target END,
        after = CASE WHEN many.count < $most::bigint THEN 0 ELSE many.seq END,
        pos = s.pos + many.count
    FROM fresh, many WHERE many.count > 0 OR s.target IS NOT NULL
)
SELECT (SELECT count FROM many)::bigint AS count, EXISTS (SELECT FROM fresh) AS is_fresh,
    pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(last.seen)
        OR {{foreign}} AS is_behind
FROM last

-- name: sequence_restored
WITH last AS MATERIALIZED (
    SELECT pos FROM detent.sequencer AS last
    WHERE pg_snapshot_xmax(pg_current_snapshot()) < pg_snapshot_xmax(snapshot) OR {{foreign}}
    FOR UPDATE
), news AS MATERIALIZED (
    SELECT e.seq, e.tenant, e.record, e.version FROM detent.events AS e CROSS JOIN last
    WHERE NOT EXISTS (
        SELECT FROM detent.feed AS f
        WHERE f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
    )
), fed AS (
    INSERT INTO detent.feed (pos, tenant, record, version)
    SELECT last.pos + row_number() OVER (ORDER BY news.seq), tenant, record, version
    FROM news CROSS JOIN last
)
UPDATE detent.sequencer AS s SET
    snapshot = pg_current_snapshot(),
    target = NULL,
    after = 0,
    pos = s.pos + (SELECT count(*) FROM news),
    floor = coalesce((
        SELECT max(e.seq) FROM detent.events AS e
        WHERE e.xid >= pg_snapshot_xmax(pg_current_snapshot())
    ), 0)
FROM last

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
