-- Worker instances: their rows, and what happened to them.

-- part: worker_columns
id, alive_until, lost, who, state, beat_at, ended_at, death

-- name: beat
INSERT INTO detent.workers AS w (id, alive_until, lost, state, who, beat_at)
SELECT told.id, told.until, 0, told.state, told.who, $now::bigint
FROM unnest(
    $workers::text[], $untils::bigint[], $states::text[], $whos::text[], $renewing::boolean[]
) AS told (id, until, state, who, renews)
WHERE NOT told.renews OR EXISTS (SELECT FROM detent.workers AS known WHERE known.id = told.id)
ORDER BY told.id
ON CONFLICT (id) DO UPDATE SET (alive_until, state, beat_at) = (
    SELECT excluded.alive_until, excluded.state, excluded.beat_at
    WHERE NOT (w.beat_at - excluded.beat_at BETWEEN 1 AND $late::bigint)
    UNION ALL
    SELECT w.alive_until, w.state, w.beat_at LIMIT 1
)
WHERE w.lost = 0
RETURNING id

-- name: declare_lost
WITH asked AS MATERIALIZED (
    SELECT id, alive_until, lost FROM detent.workers WHERE id = ANY ($workers::text[])
    ORDER BY id FOR UPDATE
), marked AS (
    UPDATE detent.workers AS w SET lost = 1, ended_at = $now::bigint FROM asked
    WHERE w.id = asked.id AND asked.lost = 0 AND asked.alive_until <= $now::bigint
)
SELECT id FROM asked WHERE lost = 0 AND alive_until > $now::bigint

-- name: workers_locked
SELECT {{worker_columns}} FROM detent.workers WHERE id = ANY ($workers::text[])
ORDER BY id FOR UPDATE

-- name: bury
UPDATE detent.workers AS w SET lost = 1, ended_at = $now::bigint, death = told.death
FROM unnest($workers::text[], $deaths::text[]) AS told (id, death) WHERE w.id = told.id

-- name: workers_named
SELECT {{worker_columns}} FROM detent.workers WHERE id = ANY ($workers::text[])

-- name: overdue
SELECT {{worker_columns}} FROM detent.workers
WHERE lost = 0 AND alive_until <= $now::bigint ORDER BY alive_until, id LIMIT $most::bigint

-- name: workers
SELECT {{worker_columns}} FROM detent.workers
WHERE lost = 0 ORDER BY alive_until DESC, id LIMIT $most::bigint

-- name: workers_gone
SELECT {{worker_columns}} FROM detent.workers
WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT $most::bigint

-- name: forget_workers
DELETE FROM detent.workers WHERE id IN (
    SELECT w.id FROM detent.workers AS w
    WHERE w.ended_at IS NOT NULL AND w.ended_at < $before::bigint AND NOT EXISTS (
        SELECT FROM detent.jobs AS j
        WHERE j.holder = w.id AND j.lease IS NOT NULL AND NOT j.wire
    ) AND NOT EXISTS (
        SELECT FROM detent.instances AS i
        WHERE i.tenant = '' AND i.id = w.id AND i.ended_at IS NULL
    )
    ORDER BY w.ended_at, w.id LIMIT $most::bigint FOR UPDATE SKIP LOCKED
)
RETURNING id

-- name: ship
WITH told AS MATERIALIZED (
    SELECT * FROM unnest(
        $tenants::text[], $ids::text[], $fences::bigint[], $slots::text[], $versions::bigint[],
        $states::text[], $ended::bigint[], $records::text[]
    ) AS told (tenant, id, fence, slot, version, state, ended_at, record)
), made AS (
    INSERT INTO detent.instances (tenant, id, slot, version, state, ended_at, record)
    SELECT tenant, id, slot, version, state, ended_at, record FROM told
    WHERE fence = 0 AND NOT EXISTS (
        SELECT FROM detent.events AS e
        WHERE e.tenant = told.tenant AND e.record = told.id AND e.version = 1
    )
    ORDER BY tenant, id
    ON CONFLICT (tenant, id) DO NOTHING RETURNING tenant, id
), moved AS (
    UPDATE detent.instances AS i
    SET version = told.version, state = told.state, ended_at = told.ended_at, record = told.record
    FROM told
    WHERE i.tenant = told.tenant AND i.id = told.id AND told.fence > 0 AND i.version = told.fence
    RETURNING i.tenant, i.id
)
SELECT tenant, id FROM made UNION ALL SELECT tenant, id FROM moved

-- name: instances
SELECT i.tenant, i.id, i.record FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
JOIN detent.instances AS i ON i.tenant = told.tenant AND i.id = told.id

-- name: instances_found
SELECT tenant, id, record FROM detent.instances
WHERE (tenant, id) > ($after_tenant::text, $after_id::text)
    AND ($slot::text IS NULL OR slot = $slot)
ORDER BY tenant, id LIMIT $most::bigint

-- name: instances_over
SELECT i.tenant, i.id FROM detent.instances AS i
WHERE i.ended_at IS NOT NULL AND i.ended_at < $before::bigint AND $sealed::bigint >= (
    SELECT coalesce(f.pos, 9223372036854775807) FROM detent.events AS e
    LEFT JOIN detent.feed AS f
        ON f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
    WHERE e.tenant = i.tenant AND e.record = i.id ORDER BY e.version DESC LIMIT 1
)
ORDER BY i.ended_at, i.tenant, i.id LIMIT $most::bigint FOR UPDATE OF i SKIP LOCKED

-- name: forget_instances
DELETE FROM detent.instances AS i USING unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
WHERE i.tenant = told.tenant AND i.id = told.id
