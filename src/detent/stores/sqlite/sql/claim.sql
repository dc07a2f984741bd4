-- name: lanes
SELECT type, profile FROM detent_counters
WHERE tenant = ? AND queue = ? AND state = 'available' AND count > 0

-- name: lane
SELECT -priority, place, id, seq FROM detent_jobs
WHERE tenant = ? AND queue = ? AND type = ? AND profile = ?
    AND state = 'available' AND held = 0 AND delivery = 'pull'
    AND (expires_at IS NULL OR expires_at > ?)
ORDER BY priority DESC, place, id

-- name: holding
SELECT seq, lease FROM detent_jobs
WHERE holder = ? AND lease IS NOT NULL AND lease IN (SELECT value FROM json_each(?))
    AND tenant = ?

-- name: worker
SELECT alive_until, lost FROM detent_workers WHERE id = ?

-- name: gate
SELECT closed, opened_at, queue_deleted FROM detent_gates WHERE tenant = ? AND kind = ? AND name = ?

-- name: stored_seq
SELECT * FROM detent_stored WHERE seq = ?

-- name: stored_seqs
SELECT * FROM detent_stored WHERE seq IN (SELECT value FROM json_each(?))

-- name: failures
SELECT seq, attempt, at, code, message, type, details, backtrace FROM detent_failures
WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY row
