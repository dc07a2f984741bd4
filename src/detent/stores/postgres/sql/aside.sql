-- What is kept beside a job: results, errors, log lines.

-- name: results_put
INSERT INTO detent.results (tenant, id, result)
SELECT * FROM unnest($tenants::text[], $ids::text[], $results::text[]) AS told (tenant, id, result)
ORDER BY tenant, id
ON CONFLICT (tenant, id) DO UPDATE SET result = excluded.result

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
        SELECT FROM detent.jobs AS j WHERE j.tenant = told.tenant AND j.id = told.id
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
