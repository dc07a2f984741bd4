-- What is kept beside a job: results, errors, log lines.

-- name: results_put
INSERT INTO detent.results (tenant, id, result, until)
SELECT * FROM unnest($tenants::text[], $ids::text[], $results::text[], $untils::bigint[])
    AS told (tenant, id, result, until)
ORDER BY tenant, id
ON CONFLICT (tenant, id) DO UPDATE SET result = excluded.result, until = excluded.until

-- name: failures_put
INSERT INTO detent.failures (tenant, id, attempt, at, code, message, type, details, backtrace)
SELECT * FROM unnest(
    $tenants::text[], $ids::text[], $attempts::bigint[], $ats::bigint[], $codes::text[],
    $messages::text[], $types::text[], $details::text[], $backtraces::text[]
)

-- name: logs_put
WITH told AS (
    SELECT told.*,
        row_number() OVER (PARTITION BY told.tenant, told.id ORDER BY told.number) AS turn
    FROM unnest(
        $tenants::text[], $ids::text[], $ats::bigint[], $levels::text[], $texts::text[]
    ) WITH ORDINALITY AS told (tenant, id, at, level, text, number)
    WHERE EXISTS (
        SELECT FROM detent.jobs AS j
        WHERE j.tenant = told.tenant AND j.id = told.id AND j.erased_at IS NULL
    )
), moved AS (
    INSERT INTO detent.cursors AS c (tenant, id, last)
    SELECT tenant, id, count(*) FROM told GROUP BY tenant, id ORDER BY tenant, id
    ON CONFLICT (tenant, id) DO UPDATE SET last = c.last + excluded.last
    RETURNING tenant, id, last
), numbered AS (
    SELECT told.*, moved.last - count(*) OVER (PARTITION BY told.tenant, told.id) + told.turn AS cursor
    FROM told JOIN moved ON moved.tenant = told.tenant AND moved.id = told.id
), written AS (
    INSERT INTO detent.logs (tenant, id, cursor, at, level, text)
    SELECT tenant, id, cursor, at, level, text FROM numbered ORDER BY number
)
SELECT number::int, cursor FROM numbered

-- name: checkpoints_put
INSERT INTO detent.checkpoints (tenant, id, checkpoint)
SELECT * FROM unnest($tenants::text[], $ids::text[], $checkpoints::text[])
    AS told (tenant, id, checkpoint) ORDER BY tenant, id
ON CONFLICT (tenant, id) DO UPDATE SET checkpoint = excluded.checkpoint

-- name: metas_put
UPDATE detent.jobs AS j SET meta = told.meta
FROM unnest($tenants::text[], $ids::text[], $metas::text[]) AS told (tenant, id, meta)
WHERE j.tenant = told.tenant AND j.id = told.id

-- name: notes_put
WITH told AS (
    SELECT DISTINCT ON (told.tenant, told.id) told.* FROM unnest(
        $tenants::text[], $ids::text[], $leases::text[], $ats::bigint[], $attempts::bigint[],
        $percents::bigint[], $texts::text[]
    ) WITH ORDINALITY AS told (tenant, id, lease, at, attempt, percent, text, number)
    JOIN detent.jobs AS j ON j.tenant = told.tenant AND j.id = told.id AND j.lease = told.lease
    ORDER BY told.tenant, told.id, told.number DESC
), flagged AS (
    UPDATE detent.jobs AS j SET has_note = true FROM told
    WHERE j.tenant = told.tenant AND j.id = told.id AND NOT j.has_note
)
INSERT INTO detent.notes (tenant, id, at, attempt, percent, text)
SELECT tenant, id, at, attempt, percent, text FROM told ORDER BY tenant, id
ON CONFLICT (tenant, id) DO UPDATE SET
    at = excluded.at, attempt = excluded.attempt, percent = excluded.percent, text = excluded.text

-- name: holding
SELECT told.number::int AS number FROM unnest($tenants::text[], $ids::text[], $leases::text[])
    WITH ORDINALITY AS told (tenant, id, lease, number)
JOIN detent.jobs AS j ON j.tenant = told.tenant AND j.id = told.id AND j.lease = told.lease
FOR NO KEY UPDATE OF j

-- name: erase
WITH told AS (
    SELECT * FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
), tags AS (
    DELETE FROM detent.tags AS t USING told WHERE t.tenant = told.tenant AND t.id = told.id
), results AS (
    DELETE FROM detent.results AS r USING told WHERE r.tenant = told.tenant AND r.id = told.id
), failures AS (
    DELETE FROM detent.failures AS f USING told WHERE f.tenant = told.tenant AND f.id = told.id
), logs AS (
    DELETE FROM detent.logs AS l USING told WHERE l.tenant = told.tenant AND l.id = told.id
    RETURNING l.pos
), tail AS (
    DELETE FROM detent.tail AS t USING logs WHERE t.line = logs.pos
), checkpoints AS (
    DELETE FROM detent.checkpoints AS c USING told WHERE c.tenant = told.tenant AND c.id = told.id
), notes AS (
    DELETE FROM detent.notes AS n USING told WHERE n.tenant = told.tenant AND n.id = told.id
)
UPDATE detent.jobs AS j SET
    payload = 'null', meta = '{}', tags = NULL, schema = NULL, has_result = false, has_failures = false, has_note = false, has_checkpoint = false
FROM told WHERE j.tenant = told.tenant AND j.id = told.id
