-- name: beat
INSERT INTO detent_workers (id, alive_until, lost, who, state, beat_at)
SELECT
    json_extract(json_each.value, '$[0]'), json_extract(json_each.value, '$[1]'), 0,
    json_extract(json_each.value, '$[3]'), json_extract(json_each.value, '$[2]'), ?2
FROM json_each(?1)
WHERE NOT (json_extract(json_each.value, '$[4]'))
    OR EXISTS (SELECT 1 FROM detent_workers WHERE id = json_extract(json_each.value, '$[0]'))
ON CONFLICT (id) DO UPDATE SET (alive_until, state, beat_at) = (
    SELECT excluded.alive_until, excluded.state, excluded.beat_at
    WHERE NOT (detent_workers.beat_at - excluded.beat_at BETWEEN 1 AND ?3)
    UNION ALL
    SELECT detent_workers.alive_until, detent_workers.state, detent_workers.beat_at LIMIT 1
)
WHERE lost = 0
RETURNING id

-- name: worker_lose
UPDATE detent_workers SET lost = 1, ended_at = ?, death = ? WHERE id = ?

-- name: worker_row
SELECT id, alive_until, lost, who, state, beat_at, ended_at, death FROM detent_workers WHERE id = ?

-- name: overdue
SELECT id, alive_until, lost, who, state, beat_at, ended_at, death FROM detent_workers
WHERE lost = 0 AND alive_until <= ? ORDER BY alive_until, id LIMIT ?

-- name: workers
SELECT id, alive_until, lost, who, state, beat_at, ended_at, death FROM detent_workers
WHERE lost = 0 ORDER BY alive_until DESC, id LIMIT ?

-- name: workers_gone
SELECT id, alive_until, lost, who, state, beat_at, ended_at, death FROM detent_workers
WHERE ended_at IS NOT NULL ORDER BY ended_at DESC, id DESC LIMIT ?

-- name: forget_workers
DELETE FROM detent_workers WHERE id IN (
    SELECT w.id FROM detent_workers AS w
    WHERE w.ended_at IS NOT NULL AND w.ended_at < ? AND NOT EXISTS (
        SELECT 1 FROM detent_jobs AS j
        WHERE j.holder = w.id AND j.lease IS NOT NULL AND j.wire = 0
    ) AND NOT EXISTS (
        SELECT 1 FROM detent_instances AS i
        WHERE i.tenant = '' AND i.id = w.id AND i.ended_at IS NULL
    )
    ORDER BY w.ended_at, w.id LIMIT ?
) RETURNING id

-- name: instance
SELECT record FROM detent_instances WHERE tenant = ? AND id = ?

-- name: instance_version
SELECT coalesce(
    (SELECT version FROM detent_instances WHERE tenant = ?1 AND id = ?2),
    (SELECT -1 FROM detent_events WHERE tenant = ?1 AND record = ?2 AND version = 1),
    0
)

-- name: instance_put
INSERT INTO detent_instances (tenant, id, slot, version, state, ended_at, record)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, state = excluded.state,
    ended_at = excluded.ended_at, record = excluded.record

-- name: instances_found
SELECT tenant, id, record FROM detent_instances
WHERE (tenant, id) > (:after_tenant, :after_id)
    AND (:slot IS NULL OR slot = :slot)
ORDER BY tenant, id LIMIT :limit

-- name: instances_over
SELECT i.tenant, i.id FROM detent_instances AS i
WHERE i.ended_at IS NOT NULL AND i.ended_at < ?1 AND ?2 >= (
    SELECT e.pos FROM detent_events AS e
    WHERE e.tenant = i.tenant AND e.record = i.id ORDER BY e.version DESC LIMIT 1
)
ORDER BY i.ended_at, i.tenant, i.id LIMIT ?3

-- name: forget_instance
DELETE FROM detent_instances WHERE tenant = ? AND id = ?
