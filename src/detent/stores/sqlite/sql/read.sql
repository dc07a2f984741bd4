-- name: seq
SELECT seq FROM detent_jobs WHERE tenant = ? AND id = ?

-- name: quiet
SELECT 1 FROM detent_jobs WHERE tenant = ? AND id = ? AND lease = ? AND cancel_at IS NULL

-- name: next_tenant
SELECT tenant FROM detent_jobs WHERE tenant > ? ORDER BY tenant LIMIT 1

-- name: first_tenant
SELECT tenant FROM detent_jobs ORDER BY tenant LIMIT 1

-- part: fits
AND (:queue IS NULL OR j.queue = :queue)
AND (:state IS NULL OR j.state = :state)
AND (:type IS NULL OR j.type = :type)
AND (:profile IS NULL OR j.profile = :profile)
AND (:key IS NULL OR j.key = :key)
AND (:workflow IS NULL OR j.workflow = :workflow)
AND (:step IS NULL OR j.step = :step)
AND (:held IS NULL OR j.held = :held)

-- part: tagged
AND (:tag IS NULL OR EXISTS (
    SELECT 1 FROM detent_tags AS t
    WHERE t.tenant = j.tenant AND t.tag = :tag AND t.id = j.id
))

-- name: found
SELECT j.id, j.seq FROM detent_jobs AS j
WHERE j.tenant = :tenant AND j.id < :below AND j.id >= :beyond
    {{fits}}
ORDER BY j.id DESC LIMIT :limit

-- name: found_held
SELECT j.id, j.seq FROM detent_jobs AS j INDEXED BY detent_jobs_holding
WHERE j.lease IS NOT NULL AND j.tenant = :tenant AND j.id < :below
    {{fits}}
ORDER BY j.id DESC LIMIT :limit

-- name: beyond
-- The last of the next so many jobs, if there are more than that.
SELECT id FROM detent_jobs WHERE tenant = ? AND id < ? ORDER BY id DESC LIMIT 1 OFFSET ?

-- name: found_rare
SELECT j.id, j.seq FROM detent_jobs AS j
WHERE j.tenant = :tenant AND j.id < :below
    AND ({{job_rare}}) AND j.state = :state
    {{fits}}
ORDER BY j.id DESC LIMIT :limit

-- name: found_on_hold
SELECT j.id, j.seq FROM detent_jobs AS j INDEXED BY detent_jobs_held
WHERE j.tenant = :tenant AND j.id < :below
    AND j.held = 1 AND j.ended_at IS NULL
    {{fits}}
ORDER BY j.id DESC LIMIT :limit

-- name: found_letters
SELECT j.id, j.seq FROM detent_jobs AS j
WHERE j.tenant = :tenant AND j.id < :below
    AND ({{job_rare}}) AND j.state = 'discarded' AND {{is_letter}}
    {{fits}}
    {{tagged}}
ORDER BY j.id DESC LIMIT :limit

-- name: found_ready
SELECT j.id, j.seq FROM detent_jobs AS j INDEXED BY detent_jobs_claimable
WHERE j.tenant = :tenant AND j.id < :below
    AND j.state = 'available' AND j.held = 0 AND j.gated = 0
    {{fits}}
    {{tagged}}
ORDER BY j.id DESC LIMIT :limit

-- name: found_in_workflow
SELECT j.id, j.seq FROM detent_jobs AS j
WHERE j.tenant = :tenant AND j.id < :below
    AND j.workflow IS NOT NULL AND j.workflow = :workflow
    {{fits}}
ORDER BY j.id DESC LIMIT :limit

-- name: found_tagged
SELECT j.id, j.seq FROM detent_tags AS t CROSS JOIN detent_jobs AS j ON j.tenant = t.tenant AND j.id = t.id
WHERE t.tenant = :tenant AND t.id < :below
    AND t.tag = :tag
    {{fits}}
ORDER BY t.id DESC LIMIT :limit

-- name: held_by
SELECT seq FROM detent_jobs WHERE holder = ? AND lease IS NOT NULL
AND lease NOT IN (SELECT value FROM json_each(?)) ORDER BY tenant, id LIMIT ?

-- name: counts
SELECT tenant, queue, state, count FROM detent_counters
WHERE (?1 IS NULL OR tenant = ?1) AND count > 0 ORDER BY tenant, queue, state

-- name: weight
SELECT coalesce(sum(length(CAST(b.payload AS BLOB))), 0)
FROM detent_jobs AS j JOIN detent_bodies AS b ON b.seq = j.seq
WHERE j.tenant = ? AND j.queue = ? AND j.ended_at IS NULL

-- name: history
SELECT * FROM detent_events WHERE tenant = ? AND record = ? ORDER BY version

-- name: feed
SELECT * FROM detent_events WHERE pos > ? ORDER BY pos LIMIT ?

-- name: blocks
SELECT number, first_pos, count, root, previous, skip FROM detent_blocks
WHERE number > ? ORDER BY number LIMIT ?

-- name: logs
SELECT j.tenant, j.id, l.cursor, l.at, l.text, l.level, l.pos
FROM detent_jobs AS j JOIN detent_logs AS l ON l.seq = j.seq
WHERE j.tenant = ? AND j.id = ? AND l.cursor > ? ORDER BY l.cursor LIMIT ?

-- name: log_tail
SELECT j.tenant, j.id, l.cursor, l.at, l.text, l.level, l.pos
FROM detent_logs AS l JOIN detent_jobs AS j ON j.seq = l.seq
WHERE l.pos > ? ORDER BY l.pos LIMIT ?

-- name: keys_first
SELECT tenant, id FROM detent_jobs ORDER BY tenant, id LIMIT ?

-- name: keys_after
SELECT tenant, id FROM detent_jobs WHERE (tenant, id) > (?, ?) ORDER BY tenant, id LIMIT ?

-- name: leaves
SELECT pos, leaf FROM detent_leaves WHERE pos > ? ORDER BY pos LIMIT ?

-- name: records
SELECT kind, id, version, data, wake_at, tenant FROM detent_records
WHERE kind = ? AND tenant = ? AND id >= ? AND id IS NOT ? ORDER BY id LIMIT ?

-- name: found_workflows
SELECT id, record FROM detent_workflows
WHERE tenant = :tenant AND id < :below AND (:state IS NULL OR state = :state)
ORDER BY id DESC LIMIT :limit

-- name: first_flow_tenant
SELECT tenant FROM detent_workflows ORDER BY tenant LIMIT 1

-- name: next_flow_tenant
SELECT tenant FROM detent_workflows WHERE tenant > ? ORDER BY tenant LIMIT 1

-- name: gates
SELECT kind, name, closed, opened_at, queue_deleted FROM detent_gates
WHERE tenant = ? ORDER BY kind, name
