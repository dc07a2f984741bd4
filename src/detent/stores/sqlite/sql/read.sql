-- name: seq
SELECT seq FROM detent_jobs WHERE tenant = ? AND id = ?

-- name: next_tenant
SELECT tenant FROM detent_jobs WHERE tenant > ? ORDER BY tenant LIMIT 1

-- name: first_tenant
SELECT tenant FROM detent_jobs ORDER BY tenant LIMIT 1

-- name: found
SELECT id, seq FROM detent_jobs
WHERE tenant = :tenant AND id < :below
    AND (:queue IS NULL OR queue = :queue)
    AND (:state IS NULL OR state = :state)
    AND (:type IS NULL OR type = :type)
    AND (:profile IS NULL OR profile = :profile)
ORDER BY id DESC LIMIT :limit

-- name: held_by
SELECT seq FROM detent_jobs WHERE holder = ? AND lease IS NOT NULL ORDER BY tenant, id LIMIT ?

-- name: counts
SELECT tenant, queue, state, sum(count) FROM detent_counters
WHERE ?1 IS NULL OR tenant = ?1
GROUP BY tenant, queue, state HAVING sum(count) > 0 ORDER BY tenant, queue, state

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
