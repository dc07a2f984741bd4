-- What need not be kept any more. Leaves stay, so that every seal can still be checked.

-- name: sealed
SELECT coalesce(max(pos), 0) AS pos FROM detent.leaves

-- name: over
SELECT j.ended_at, j.tenant, j.id FROM detent.jobs AS j
WHERE j.state = $state AND j.ended_at IS NOT NULL AND j.ended_at < $before::bigint
    AND ($tenant::text IS NULL OR j.tenant = $tenant) AND ($queue::text IS NULL OR j.queue = $queue)
    AND ($letters::boolean OR NOT ({{is_letter}}))
    AND $sealed::bigint >= (
        SELECT coalesce(f.pos, 9223372036854775807) FROM detent.events AS e
        LEFT JOIN detent.feed AS f
            ON f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
        WHERE e.tenant = j.tenant AND e.record = j.id ORDER BY e.version DESC LIMIT 1
    )
    AND (j.workflow IS NULL OR EXISTS (
        SELECT FROM detent.workflows AS w
        WHERE w.tenant = j.tenant AND w.id = j.workflow AND w.ended_at IS NOT NULL
    ))
ORDER BY j.ended_at, j.tenant, j.id LIMIT $most::bigint
FOR UPDATE OF j SKIP LOCKED

-- name: still_over
SELECT told.tenant, told.id FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
WHERE $sealed::bigint >= (
    SELECT coalesce(f.pos, 9223372036854775807) FROM detent.events AS e
    LEFT JOIN detent.feed AS f
        ON f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
    WHERE e.tenant = told.tenant AND e.record = told.id ORDER BY e.version DESC LIMIT 1
)

-- name: may_forget
SELECT set_config('detent.retention', 'on', true)

-- name: forget_jobs
WITH told AS (
    SELECT * FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
), jobs AS (
    DELETE FROM detent.jobs AS j USING told WHERE j.tenant = told.tenant AND j.id = told.id
    RETURNING j.lane, j.state
), unplaced AS (
    DELETE FROM detent.unplaced AS u USING told WHERE u.tenant = told.tenant AND u.id = told.id
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
), cursors AS (
    DELETE FROM detent.cursors AS c USING told WHERE c.tenant = told.tenant AND c.id = told.id
), checkpoints AS (
    DELETE FROM detent.checkpoints AS c USING told WHERE c.tenant = told.tenant AND c.id = told.id
), notes AS (
    DELETE FROM detent.notes AS n USING told WHERE n.tenant = told.tenant AND n.id = told.id
), promises AS (
    DELETE FROM detent.idempotency AS i USING told WHERE i.tenant = told.tenant AND i.id = told.id
)
INSERT INTO detent.tallies (lane, state, count)
SELECT lane, state, -count(*) FROM jobs WHERE lane IS NOT NULL GROUP BY lane, state

-- name: forget_events
DELETE FROM detent.events AS e
USING unnest($tenants::text[], $records::text[]) AS told (tenant, record)
WHERE e.tenant = told.tenant AND e.record = told.record

-- name: forget_positions
DELETE FROM detent.feed AS f
USING unnest($tenants::text[], $records::text[]) AS told (tenant, record)
WHERE f.tenant = told.tenant AND f.record = told.record

-- name: empty_workflows
SELECT w.tenant, w.id FROM detent.workflows AS w
WHERE w.ended_at IS NOT NULL AND w.ended_at < $before::bigint
    AND ($tenant::text IS NULL OR w.tenant = $tenant)
    AND NOT EXISTS (
        SELECT FROM detent.jobs AS j
        WHERE j.tenant = w.tenant AND j.workflow = w.id AND j.workflow IS NOT NULL
    )
    AND NOT EXISTS (
        SELECT FROM (
            SELECT w.id AS record
            UNION ALL
            SELECT s.id FROM detent.steps AS s WHERE s.tenant = w.tenant AND s.workflow = w.id
        ) AS one
        JOIN detent.events AS e ON e.tenant = w.tenant AND e.record = one.record
        LEFT JOIN detent.feed AS f
            ON f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
        WHERE f.pos IS NULL OR f.pos > $sealed::bigint
    )
ORDER BY w.tenant, w.id LIMIT $most::bigint

-- name: forget_workflows
WITH told AS (
    SELECT * FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
), workflows AS (
    DELETE FROM detent.workflows AS w USING told WHERE w.tenant = told.tenant AND w.id = told.id
)
DELETE FROM detent.steps AS s USING told WHERE s.tenant = told.tenant AND s.workflow = told.id
RETURNING s.tenant, s.id

-- name: forget_turns
DELETE FROM detent.served WHERE (tenant, fair, name) IN (
    SELECT tenant, fair, name FROM detent.served WHERE turn < $before::bigint
    ORDER BY turn, tenant, fair, name LIMIT $most::bigint
)

-- name: forget_promises
DELETE FROM detent.idempotency WHERE (tenant, key) IN (
    SELECT tenant, key FROM detent.idempotency WHERE expires_at <= $now::bigint LIMIT $most::bigint
)

-- name: forget_results
-- What whoever comes later in a workflow may still ask for is looked at again later.
WITH due AS (
    SELECT r.tenant, r.id, EXISTS (
        SELECT FROM detent.jobs AS j
        JOIN detent.workflows AS w ON w.tenant = j.tenant AND w.id = j.workflow
        WHERE j.tenant = r.tenant AND j.id = r.id AND w.ended_at IS NULL
    ) AS needed
    FROM detent.results AS r
    WHERE r.until IS NOT NULL AND r.until <= $now::bigint
    ORDER BY r.until LIMIT $most::bigint
    FOR UPDATE OF r SKIP LOCKED
), kept AS (
    UPDATE detent.results AS r SET until = $again::bigint
    FROM due WHERE due.needed AND r.tenant = due.tenant AND r.id = due.id
), gone AS (
    DELETE FROM detent.results AS r USING due
    WHERE NOT due.needed AND r.tenant = due.tenant AND r.id = due.id
    RETURNING r.id
)
SELECT count(*) FROM gone
