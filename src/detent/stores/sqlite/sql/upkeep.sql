-- name: due
SELECT seq FROM jobs WHERE wake_at IS NOT NULL AND wake_at <= ? ORDER BY wake_at, tenant, id LIMIT ?

-- name: lost_due
SELECT j.seq FROM workers AS w
CROSS JOIN jobs AS j ON j.holder = w.id AND j.lease IS NOT NULL AND j.wire = 0
LEFT JOIN handed AS h ON h.seq = j.seq
WHERE w.lost = 1 AND (h.until IS NULL OR h.until <= ?)
ORDER BY j.tenant, j.id LIMIT ?

-- name: lost_emptied
UPDATE workers SET lost = 2 WHERE lost = 1 AND NOT EXISTS (
    SELECT 1 FROM jobs WHERE holder = workers.id AND lease IS NOT NULL AND wire = 0
)

-- name: hand
INSERT OR REPLACE INTO handed (seq, until) VALUES (?, ?)

-- name: due_hold
UPDATE jobs SET wake_at = ? WHERE seq = ?

-- name: lease
SELECT until FROM leases WHERE lease = ?

-- name: lease_extend
UPDATE leases SET until = ? WHERE lease = ?

-- name: worker_put
INSERT INTO workers (id, alive_until, lost) VALUES (?, ?, 0)
ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until

-- name: worker_lose
UPDATE workers SET lost = 1 WHERE id = ?

-- name: gate_put
INSERT OR REPLACE INTO gates (tenant, kind, name, closed, opened_at, queue_deleted)
VALUES (?, ?, ?, ?, ?, ?)

-- name: block_last
SELECT number, first_pos, count, root, previous, skip FROM blocks ORDER BY number DESC LIMIT 1

-- name: block
SELECT number, first_pos, count, root, previous, skip FROM blocks WHERE number = ?

-- name: block_insert
INSERT INTO blocks (number, first_pos, count, root, previous, skip) VALUES (?, ?, ?, ?, ?, ?)

-- name: leaf_insert
INSERT INTO leaves (pos, leaf) VALUES (?, ?)
