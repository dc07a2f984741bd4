-- What the clock, the workers and the operators change.

-- name: take_due
WITH lost AS MATERIALIZED (
    SELECT j.tenant, j.id FROM detent.workers AS w
    JOIN detent.jobs AS j ON j.holder = w.id AND j.lease IS NOT NULL AND NOT j.wire
    WHERE w.lost = 1 AND (j.handed_until IS NULL OR j.handed_until <= $now::bigint)
    ORDER BY j.tenant, j.id LIMIT $most::bigint FOR UPDATE OF j SKIP LOCKED
), swept AS MATERIALIZED (
    SELECT j.tenant, j.id FROM detent.steps AS s
    JOIN detent.jobs AS j ON j.tenant = s.tenant AND j.step = s.id
        AND j.step IS NOT NULL AND j.state = ANY (ARRAY[{{parked}}])
    WHERE s.swept = 1 AND (j.handed_until IS NULL OR j.handed_until <= $now::bigint)
    ORDER BY j.tenant, j.id LIMIT $most::bigint FOR UPDATE OF j SKIP LOCKED
), due AS MATERIALIZED (
    SELECT j.tenant, j.id, j.wake_at FROM detent.jobs AS j
    WHERE j.wake_at IS NOT NULL AND j.wake_at <= $now::bigint
        AND (j.handed_until IS NULL OR j.handed_until <= $now::bigint)
    ORDER BY j.wake_at, j.tenant, j.id LIMIT $most::bigint FOR UPDATE SKIP LOCKED
), chosen AS MATERIALIZED (
    SELECT tenant, id, min(since) AS since FROM (
        SELECT tenant, id, 0::bigint AS since FROM lost
        UNION ALL
        SELECT tenant, id, 0::bigint FROM swept
        UNION ALL
        SELECT tenant, id, wake_at FROM due
    ) AS either
    GROUP BY tenant, id ORDER BY min(since), tenant, id LIMIT $most::bigint
), handed AS (
    UPDATE detent.jobs AS j SET wake_at = $until::bigint, handed_until = $until::bigint
    FROM chosen WHERE j.tenant = chosen.tenant AND j.id = chosen.id
)
SELECT s.*, w.alive_until, w.lost, r.until,
    q.closed AS queue_closed, q.opened_at AS queue_opened_at, q.queue_deleted,
    t.closed AS type_closed, t.opened_at AS type_opened_at, t.queue_deleted AS type_deleted,
    coalesce(p.swept, 0) AS swept
FROM chosen JOIN detent.stored AS s ON s.tenant = chosen.tenant AND s.id = chosen.id
LEFT JOIN detent.workers AS w ON w.id = s.holder AND s.lease IS NOT NULL AND NOT s.wire
LEFT JOIN detent.leases AS r ON r.lease = s.lease AND s.wire
LEFT JOIN detent.gates AS q ON q.tenant = s.tenant AND q.kind = 'queue' AND q.name = s.queue
LEFT JOIN detent.gates AS t ON t.tenant = s.tenant AND t.kind = 'type' AND t.name = s.type
LEFT JOIN detent.steps AS p ON p.tenant = s.tenant AND p.id = s.step
ORDER BY chosen.since, s.tenant, s.id

-- name: lost_emptied
UPDATE detent.workers AS w SET lost = 2 WHERE w.lost = 1 AND NOT EXISTS (
    SELECT FROM detent.jobs AS j WHERE j.holder = w.id AND j.lease IS NOT NULL AND NOT j.wire
)

-- name: swept_emptied
UPDATE detent.steps AS s SET swept = 2 WHERE s.swept = 1 AND NOT EXISTS (
    SELECT FROM detent.jobs AS j WHERE j.tenant = s.tenant AND j.step = s.id
        AND j.step IS NOT NULL AND j.state = ANY (ARRAY[{{parked}}])
)

-- name: take_due_records
WITH due AS MATERIALIZED (
    SELECT r.kind, r.tenant, r.id, r.wake_at FROM detent.records AS r
    WHERE r.wake_at IS NOT NULL AND r.wake_at <= $now::bigint
    ORDER BY r.wake_at, r.kind, r.tenant, r.id LIMIT $most::bigint FOR UPDATE SKIP LOCKED
), held AS (
    UPDATE detent.records AS r SET wake_at = $until::bigint FROM due
    WHERE r.kind = due.kind AND r.tenant = due.tenant AND r.id = due.id
    RETURNING r.kind, r.id, r.version, r.data, r.wake_at, r.tenant, due.wake_at AS since
)
SELECT kind, id, version, data, wake_at, tenant FROM held ORDER BY since, kind, tenant, id

-- name: tallies_many
SELECT count(*) FROM (SELECT FROM detent.tallies LIMIT $most::bigint) AS tallies

-- name: tallies_folded
-- What stands alone is a sum already.
WITH many AS MATERIALIZED (
    SELECT lane, state FROM detent.tallies GROUP BY lane, state HAVING count(*) > 1
), gone AS (
    DELETE FROM detent.tallies AS t USING many WHERE t.lane = many.lane AND t.state = many.state
    RETURNING t.lane, t.state, t.count
)
INSERT INTO detent.tallies (lane, state, count)
SELECT lane, state, sum(count) FROM gone GROUP BY lane, state HAVING sum(count) <> 0

-- name: extend
WITH told AS (
    SELECT * FROM unnest($leases::text[], $untils::bigint[]) AS told (lease, until)
), sooner AS MATERIALIZED (
    -- Jobs are locked before leases, here as everywhere.
    SELECT j.tenant, j.id, told.until FROM told
    JOIN detent.leases AS l ON l.lease = told.lease
    JOIN detent.jobs AS j ON j.tenant = l.tenant AND j.id = l.id AND j.lease = l.lease AND j.wire
    WHERE j.wake_at IS NULL OR told.until < j.wake_at
    ORDER BY j.tenant, j.id FOR UPDATE OF j
), woken AS (
    UPDATE detent.jobs AS j SET wake_at = sooner.until, handed_until = NULL FROM sooner
    WHERE j.tenant = sooner.tenant AND j.id = sooner.id
), locked AS MATERIALIZED (
    SELECT l.lease FROM detent.leases AS l
    WHERE l.lease = ANY ($leases::text[]) AND (SELECT count(*) FROM sooner) >= 0
    ORDER BY l.lease FOR UPDATE
)
UPDATE detent.leases AS l SET until = told.until
FROM told, locked WHERE l.lease = told.lease AND locked.lease = l.lease
RETURNING l.lease

-- name: limits_put
INSERT INTO detent.limits (tenant, kind, name, concurrency, rate, period_us, spacing_us)
SELECT * FROM unnest(
    $tenants::text[], $kinds::text[], $names::text[], $concurrencies::bigint[], $rates::bigint[],
    $periods::bigint[], $spacings::bigint[]
) AS told (tenant, kind, name, concurrency, rate, period_us, spacing_us)
ORDER BY tenant, kind, name
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    concurrency = excluded.concurrency, rate = excluded.rate, period_us = excluded.period_us,
    spacing_us = excluded.spacing_us

-- name: limits_dropped
DELETE FROM detent.limits AS l USING unnest($tenants::text[], $kinds::text[], $names::text[])
    AS told (tenant, kind, name)
WHERE l.tenant = told.tenant AND l.kind = told.kind AND l.name = told.name

-- name: any_limit
SELECT EXISTS (SELECT FROM detent.limits) AS is_limited

-- name: gates_put
INSERT INTO detent.gates (tenant, kind, name, closed, opened_at, queue_deleted)
SELECT * FROM unnest(
    $tenants::text[], $kinds::text[], $names::text[], $closed::boolean[], $opened_at::bigint[],
    $deleted::boolean[]
) AS told (tenant, kind, name, closed, opened_at, queue_deleted) ORDER BY tenant, kind, name
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    closed = excluded.closed, opened_at = excluded.opened_at,
    queue_deleted = excluded.queue_deleted
