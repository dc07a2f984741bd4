-- name: head
SELECT seq, version, state, queue, type, lease, wire, holder, is_unique
FROM detent_jobs WHERE tenant = ? AND id = ?

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM detent_jobs

-- name: job_insert
INSERT INTO detent_jobs (
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, previous, place, held, attempt, failures, losses, handed_back,
    run_at, expires_at, available_us, pending_us, active_us, lease, holder, wire, lease_us,
    enqueued_at, ready_at, activated_at, claimed_at, started_at, received_at, start_us, ended_at,
    erased_at, cancel_at, force_at, cause, returned_by, delay_us, rerun_of, workflow, step,
    type, wake_at, is_unique
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)

-- name: job_move
UPDATE detent_jobs SET
    version = ?, state = ?, queue = ?, priority = ?, state_at = ?, last_at = ?, previous = ?,
    place = ?, held = ?, attempt = ?, failures = ?, losses = ?, handed_back = ?, run_at = ?,
    lease = ?, holder = ?, wire = ?, lease_us = ?, enqueued_at = ?, ready_at = ?,
    activated_at = ?, claimed_at = ?, started_at = ?, received_at = ?, start_us = ?,
    ended_at = ?, erased_at = ?, cancel_at = ?, force_at = ?, cause = ?, returned_by = ?,
    delay_us = ?, wake_at = ?
WHERE seq = ? AND version = ?

-- name: job_rearm
UPDATE detent_jobs SET wake_at = ? WHERE seq = ? AND version = ?

-- name: body_insert
INSERT INTO detent_bodies (seq, payload, meta, tags, retry, schema) VALUES (?, ?, ?, ?, ?, ?)

-- name: event_insert
INSERT INTO detent_events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: result_put
INSERT INTO detent_results (seq, result) VALUES (?, ?)
ON CONFLICT (seq) DO UPDATE SET result = excluded.result

-- name: failure_insert
INSERT INTO detent_failures (seq, attempt, at, code, message, type, details, backtrace)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: lease_put
INSERT OR REPLACE INTO detent_leases (lease, until, seq) VALUES (?, ?, ?)

-- name: lease_end
DELETE FROM detent_leases WHERE lease = ?

-- name: count
INSERT INTO detent_counters (tenant, queue, state, type, profile, count) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, queue, state, type, profile) DO UPDATE SET count = count + excluded.count

-- name: is_own
SELECT 1 FROM detent_events WHERE tenant = ? AND record = ? AND command_id = ? LIMIT 1

-- name: unique_insert
INSERT INTO detent_uniques (seq, tenant, fingerprint, state, created_at) VALUES (?, ?, ?, ?, ?)

-- name: unique_move
UPDATE detent_uniques SET state = ? WHERE seq = ?

-- name: unique_holders
SELECT created_at, seq FROM detent_uniques
WHERE tenant = ? AND fingerprint = ? AND state = ? AND created_at >= ?
ORDER BY created_at, seq LIMIT ?

-- name: unique_of
SELECT created_at, seq FROM detent_uniques
WHERE seq = ? AND tenant = ? AND fingerprint = ? AND created_at >= ?

-- name: idempotency_find
SELECT seq, digest FROM detent_idempotency WHERE tenant = ? AND key = ? AND expires_at > ?

-- name: idempotency_put
INSERT OR REPLACE INTO detent_idempotency (tenant, key, digest, expires_at, seq)
VALUES (?, ?, ?, ?, ?)

-- name: log_insert
INSERT INTO detent_logs (seq, cursor, at, level, text) VALUES (?, ?, ?, ?, ?)

-- name: log_last
SELECT coalesce(max(cursor), 0) FROM detent_logs WHERE seq = ?

-- name: any_handed
SELECT 1 FROM detent_handed LIMIT 1

-- name: unhand
DELETE FROM detent_handed WHERE seq = ?

-- name: worker_reopen
UPDATE detent_workers SET lost = 1 WHERE id = ? AND lost = 2
