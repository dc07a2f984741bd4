-- name: due
SELECT seq FROM detent_jobs WHERE wake_at IS NOT NULL AND wake_at <= ?
ORDER BY wake_at, tenant, id LIMIT ?

-- name: lost_due
SELECT j.tenant, j.id, j.seq FROM detent_workers AS w
CROSS JOIN detent_jobs AS j ON j.holder = w.id AND j.lease IS NOT NULL AND j.wire = 0
LEFT JOIN detent_handed AS h ON h.seq = j.seq
WHERE w.lost = 1 AND (h.until IS NULL OR h.until <= ?)
ORDER BY j.tenant, j.id LIMIT ?

-- name: lost_emptied
UPDATE detent_workers SET lost = 2 WHERE lost = 1 AND NOT EXISTS (
    SELECT 1 FROM detent_jobs WHERE holder = detent_workers.id AND lease IS NOT NULL AND wire = 0
)

-- name: swept_due
SELECT j.tenant, j.id, j.seq FROM detent_steps AS s
CROSS JOIN detent_jobs AS j ON j.tenant = s.tenant AND j.step = s.id AND ({{j.parked}})
LEFT JOIN detent_handed AS h ON h.seq = j.seq
WHERE s.swept = 1 AND (h.until IS NULL OR h.until <= ?)
ORDER BY j.tenant, j.id LIMIT ?

-- name: swept_emptied
UPDATE detent_steps SET swept = 2 WHERE swept = 1 AND NOT EXISTS (
    SELECT 1 FROM detent_jobs AS j
    WHERE j.tenant = detent_steps.tenant AND j.step = detent_steps.id AND ({{j.parked}})
)

-- name: is_swept
SELECT swept FROM detent_steps WHERE tenant = ? AND id = ?

-- name: records_due
SELECT kind, id, version, data, wake_at, tenant FROM detent_records
WHERE wake_at IS NOT NULL AND wake_at <= ? ORDER BY wake_at, kind, tenant, id LIMIT ?

-- name: record_hold
UPDATE detent_records SET wake_at = ? WHERE kind = ? AND tenant = ? AND id = ?

-- name: hand
INSERT OR REPLACE INTO detent_handed (seq, until) VALUES (?, ?)

-- name: due_hold
UPDATE detent_jobs SET wake_at = ? WHERE seq = ?

-- name: lease
SELECT until FROM detent_leases WHERE lease = ?

-- name: lease_extend
UPDATE detent_leases SET until = ? WHERE lease = ? RETURNING seq

-- name: wake_earlier
UPDATE detent_jobs SET wake_at = ? WHERE seq = ? AND (wake_at IS NULL OR wake_at > ?)

-- name: gate_put
INSERT OR REPLACE INTO detent_gates (tenant, kind, name, closed, opened_at, queue_deleted)
VALUES (?, ?, ?, ?, ?, ?)

-- name: block_last
SELECT number, first_pos, count, root, previous, skip FROM detent_blocks
ORDER BY number DESC LIMIT 1

-- name: block
SELECT number, first_pos, count, root, previous, skip FROM detent_blocks WHERE number = ?

-- name: block_insert
INSERT INTO detent_blocks (number, first_pos, count, root, previous, skip) VALUES (?, ?, ?, ?, ?, ?)

-- name: leaf_insert
INSERT INTO detent_leaves (pos, leaf) VALUES (?, ?)
