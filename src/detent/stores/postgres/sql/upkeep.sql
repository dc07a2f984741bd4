-- What the clock, the workers and the operators change.

-- name: take_due
WITH lost AS MATERIALIZED (
    SELECT j.tenant, j.id FROM detent.workers AS w
    JOIN detent.jobs AS j ON j.holder = w.id AND j.lease IS NOT NULL AND NOT j.wire
    WHERE w.lost = 1 AND (j.handed_until IS NULL OR j.handed_until <= $now::bigint)
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
        SELECT tenant, id, wake_at FROM due
    ) AS either
    GROUP BY tenant, id ORDER BY min(since), tenant, id LIMIT $most::bigint
), handed AS (
    UPDATE detent.jobs AS j SET wake_at = $until::bigint, handed_until = $until::bigint
    FROM chosen WHERE j.tenant = chosen.tenant AND j.id = chosen.id
)
SELECT s.*, w.alive_until, w.lost, r.until,
    q.closed AS queue_closed, q.opened_at AS queue_opened_at, q.queue_deleted,
    t.closed AS type_closed, t.opened_at AS type_opened_at
FROM chosen JOIN detent.stored AS s ON s.tenant = chosen.tenant AND s.id = chosen.id
LEFT JOIN detent.workers AS w ON w.id = s.holder AND s.lease IS NOT NULL AND NOT s.wire
LEFT JOIN detent.leases AS r ON r.lease = s.lease AND s.wire
LEFT JOIN detent.gates AS q ON q.tenant = s.tenant AND q.kind = 'queue' AND q.name = s.queue
LEFT JOIN detent.gates AS t ON t.tenant = s.tenant AND t.kind = 'type' AND t.name = s.type
ORDER BY chosen.since, s.tenant, s.id

-- name: lost_emptied
UPDATE detent.workers AS w SET lost = 2 WHERE w.lost = 1 AND NOT EXISTS (
    SELECT FROM detent.jobs AS j WHERE j.holder = w.id AND j.lease IS NOT NULL AND NOT j.wire
)

-- name: tallies_many
SELECT count(*) FROM (SELECT FROM detent.tallies LIMIT $most::bigint) AS tallies

-- name: tallies_folded
WITH gone AS (DELETE FROM detent.tallies RETURNING lane, state, count)
INSERT INTO detent.tallies (lane, state, count)
SELECT lane, state, sum(count) FROM gone GROUP BY lane, state HAVING sum(count) <> 0

-- name: beat
INSERT INTO detent.workers AS w (id, alive_until, lost)
SELECT id, until, 0 FROM unnest($workers::text[], $untils::bigint[]) AS told (id, until) ORDER BY id
ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until WHERE w.lost = 0
RETURNING id

-- name: declare_lost
WITH asked AS MATERIALIZED (
    SELECT id, alive_until, lost FROM detent.workers WHERE id = ANY ($workers::text[])
    ORDER BY id FOR UPDATE
), marked AS (
    UPDATE detent.workers AS w SET lost = 1 FROM asked
    WHERE w.id = asked.id AND asked.lost = 0 AND asked.alive_until <= $now::bigint
)
SELECT id FROM asked WHERE lost = 0 AND alive_until > $now::bigint

-- name: extend
WITH locked AS MATERIALIZED (
    SELECT l.lease FROM detent.leases AS l WHERE l.lease = ANY ($leases::text[])
    ORDER BY l.lease FOR UPDATE
)
UPDATE detent.leases AS l SET until = told.until
FROM unnest($leases::text[], $untils::bigint[]) AS told (lease, until), locked
WHERE l.lease = told.lease AND locked.lease = l.lease
RETURNING l.lease

-- name: gates_put
INSERT INTO detent.gates (tenant, kind, name, closed, opened_at, queue_deleted)
SELECT * FROM unnest(
    $tenants::text[], $kinds::text[], $names::text[], $closed::boolean[], $opened_at::bigint[],
    $deleted::boolean[]
) AS told (tenant, kind, name, closed, opened_at, queue_deleted) ORDER BY tenant, kind, name
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    closed = excluded.closed, opened_at = excluded.opened_at,
    queue_deleted = excluded.queue_deleted
