-- name: head
SELECT seq, version, state, queue, type, lease, wire, holder, is_unique, key, previous, attempt,
    step, erased_at, returned_by
FROM detent_jobs WHERE tenant = ? AND id = ?

-- name: heads
SELECT id, seq, version, state, queue, type, lease, wire, holder, is_unique, key, previous, attempt,
    step, erased_at, returned_by
FROM detent_jobs WHERE tenant = ? AND id IN (SELECT value FROM json_each(?))

-- name: last_seq
SELECT coalesce(max(seq), 0) FROM detent_jobs

-- name: job_insert
INSERT INTO detent_jobs (
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, previous, place, held, attempt, failures, losses, handed_back,
    run_at, expires_at, available_us, pending_us, active_us, lease, holder, wire, lease_us,
    enqueued_at, ready_at, activated_at, claimed_at, started_at, received_at, start_us, ended_at,
    erased_at, cancel_at, force_at, cause, returned_by, delay_us, rerun_of, workflow, step,
    type, key, wake_at, is_unique, gated
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)

-- name: job_born
-- The same for a job that nothing has happened to yet: most of its columns are empty.
INSERT INTO detent_jobs (
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, run_at, expires_at, available_us, pending_us,
    active_us, enqueued_at, ready_at, rerun_of, workflow, step, type, key, wake_at, is_unique, gated,
    attempt, failures, losses, handed_back, wire
) VALUES (
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
    0, 0, 0, 0, 0
)

-- name: births
-- Jobs that stand alike: what each has of its own are its id, its moment and its place.
INSERT INTO detent_jobs (
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, available_us, pending_us, active_us, enqueued_at,
    ready_at, type, key, wake_at, is_unique, gated, attempt, failures, losses, handed_back, wire
)
SELECT
    ?1 + b.key, ?3, json_extract(b.value, '$[0]'), ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
    json_extract(b.value, '$[1]'), json_extract(b.value, '$[1]'), json_extract(b.value, '$[1]'),
    json_extract(b.value, '$[2]'), ?12, ?13, ?14, ?15, json_extract(b.value, '$[1]'),
    json_extract(b.value, '$[1]'), ?16, ?17, json_extract(b.value, '$[1]') + ?18,
    0, 0, 0, 0, 0, 0, 0
FROM json_each(?2) AS b

-- name: births_at_once
-- The same for those of one moment with one place after the other: only their ids differ.
INSERT INTO detent_jobs (
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, available_us, pending_us, active_us, enqueued_at,
    ready_at, type, key, wake_at, is_unique, gated, attempt, failures, losses, handed_back, wire
)
SELECT
    ?1 + b.key, ?3, b.value, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11,
    ?19, ?19, ?19, ?20 + b.key, ?12, ?13, ?14, ?15, ?19,
    ?19, ?16, ?17, ?19 + ?18, 0, 0, 0, 0, 0, 0, 0
FROM json_each(?2) AS b

-- name: birth_bodies
INSERT INTO detent_bodies (seq, payload, meta, tags, retry, schema)
SELECT ?1 + b.key, b.value, ?3, ?4, ?5, ?6 FROM json_each(?2) AS b

-- name: birth_events
INSERT INTO detent_events (
    pos, tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT ?1 + j.seq, j.tenant, j.id, 1, j.created_at, ?4, ?5, ?6, ?7, ?8, j.id, ?9,
    ?10 || j.place || ?11
FROM detent_jobs AS j WHERE j.seq BETWEEN ?2 AND ?3

-- name: lone_job
-- One of them alone. Nobody is told its row number before: what else belongs to it follows at once.
INSERT INTO detent_jobs (
    tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, available_us, pending_us, active_us, enqueued_at,
    ready_at, type, key, wake_at, is_unique, gated, attempt, failures, losses, handed_back, wire
) VALUES (
    ?4, ?1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?2, ?2, ?2, ?3, ?13, ?14, ?15, ?16, ?2, ?2, ?17, ?18,
    ?2 + ?19, 0, 0, 0, 0, 0, 0, 0
)

-- name: lone_body
INSERT INTO detent_bodies (seq, payload, meta, tags, retry, schema)
VALUES (last_insert_rowid(), ?, ?, ?, ?, ?)

-- name: lone_event
INSERT INTO detent_events (
    pos, tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
) VALUES (
    1 + max(
        (SELECT coalesce(max(pos), 0) FROM detent_events),
        (SELECT coalesce(max(pos), 0) FROM detent_leaves)
    ),
    ?4, ?1, 1, ?2, ?5, ?6, ?7, ?8, ?9, ?1, ?10, ?11 || ?3 || ?12
)

-- name: job_move
UPDATE detent_jobs SET
    version = ?, state = ?, queue = ?, priority = ?, state_at = ?, last_at = ?, previous = ?,
    place = ?, held = ?, attempt = ?, failures = ?, losses = ?, handed_back = ?, run_at = ?,
    lease = ?, holder = ?, wire = ?, lease_us = ?, enqueued_at = ?, ready_at = ?,
    activated_at = ?, claimed_at = ?, started_at = ?, received_at = ?, start_us = ?,
    ended_at = ?, erased_at = ?, cancel_at = ?, force_at = ?, cause = ?, returned_by = ?,
    delay_us = ?, wake_at = ?, gated = ?
WHERE seq = ? AND version = ?

-- name: job_taken
-- What a claim or a dispatch changes, and nothing else: most moves are this one or the next, and a
-- column that is not set costs nothing.
UPDATE detent_jobs SET
    version = ?, state = ?, state_at = ?, last_at = ?, previous = ?, attempt = ?, run_at = ?,
    lease = ?, holder = ?, wire = ?, lease_us = ?, claimed_at = ?, started_at = ?,
    returned_by = ?, wake_at = ?
WHERE seq = ? AND version = ?

-- name: job_done
UPDATE detent_jobs SET
    version = ?, state = ?, state_at = ?, last_at = ?, previous = ?, lease = ?, wire = ?,
    lease_us = ?, received_at = ?, start_us = ?, ended_at = ?, cause = ?, wake_at = ?
WHERE seq = ? AND version = ?

-- name: ending
-- The fences of completions that are alike, asked together: whoever is not as it was is not in the answer.
SELECT json_group_array(j.seq), json_group_array(j.lease), sum(j.wire)
FROM json_each(?1) AS asked CROSS JOIN detent_jobs AS j ON j.tenant = ?2 AND j.id = asked.value
WHERE j.queue = ?3 AND j.version = ?4 AND j.state = 'active' AND j.is_unique = 0

-- name: jobs_done
-- The same as job_done, for many at once.
UPDATE detent_jobs SET
    version = ?, state = ?, state_at = ?, last_at = ?, previous = ?, lease = ?, wire = ?,
    lease_us = ?, received_at = ?, start_us = ?, ended_at = ?, cause = ?, wake_at = ?
WHERE seq IN (SELECT value FROM json_each(?)) AND version = ?

-- name: job_rearm
UPDATE detent_jobs SET wake_at = ? WHERE seq = ? AND version = ?

-- name: body_insert
INSERT INTO detent_bodies (seq, payload, meta, tags, retry, schema) VALUES (?, ?, ?, ?, ?, ?)

-- name: event_insert
INSERT INTO detent_events (
    pos, tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: events_done
-- The events of completions that are alike. Each name is the command, the digest and the record in one,
-- of which the first two are as long everywhere.
INSERT INTO detent_events (
    pos, tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT ?2 + named.key, ?5, substr(named.value, 1 + ?3 + ?4), ?6, ?7, ?8, ?9, ?10, ?11, ?12,
    substr(named.value, 1, ?3), ?13, ?14 || substr(named.value, 1 + ?3, ?4) || ?15
FROM json_each(?1) AS named

-- name: last_pos
SELECT max(
    (SELECT coalesce(max(pos), 0) FROM detent_events),
    (SELECT coalesce(max(pos), 0) FROM detent_leaves)
)

-- name: result_put
INSERT INTO detent_results (seq, result, until) VALUES (?, ?, ?)
ON CONFLICT (seq) DO UPDATE SET result = excluded.result, until = excluded.until

-- name: failure_insert
INSERT INTO detent_failures (seq, attempt, at, code, message, type, details, backtrace)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: lease_put
INSERT OR REPLACE INTO detent_leases (lease, until, seq) VALUES (?, ?, ?)

-- name: lease_end
DELETE FROM detent_leases WHERE lease = ?

-- name: leases_end
DELETE FROM detent_leases WHERE lease IN (SELECT value FROM json_each(?))

-- name: count
INSERT INTO detent_counters (tenant, queue, state, count) VALUES (?, ?, ?, ?)
ON CONFLICT (tenant, queue, state) DO UPDATE SET count = count + excluded.count

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

-- name: unhand_all
DELETE FROM detent_handed WHERE seq IN (SELECT value FROM json_each(?))

-- name: worker_reopen
UPDATE detent_workers SET lost = 1 WHERE id = ? AND lost = 2

-- name: lane_count
INSERT INTO detent_lanes (tenant, queue, delivery, type, profile, key, count)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, queue, delivery, type, profile, key)
DO UPDATE SET count = count + excluded.count

-- name: lane_drop
DELETE FROM detent_lanes
WHERE tenant = ? AND queue = ? AND delivery = ? AND type = ? AND profile = ? AND key = ?
    AND key <> '' AND count = 0

-- name: tag_insert
INSERT OR IGNORE INTO detent_tags (tenant, tag, id) VALUES (?, ?, ?)

-- name: meta_put
UPDATE detent_bodies SET meta = ? WHERE seq = ?

-- name: checkpoint_put
INSERT OR REPLACE INTO detent_checkpoints (seq, checkpoint) VALUES (?, ?)

-- name: note_put
INSERT OR REPLACE INTO detent_notes (seq, at, attempt, percent, text) VALUES (?, ?, ?, ?, ?)

-- name: record
SELECT kind, id, version, data, wake_at, tenant, command_id FROM detent_records
WHERE kind = ? AND tenant = ? AND id = ?

-- name: record_put
INSERT OR REPLACE INTO detent_records (kind, tenant, id, version, data, wake_at, command_id)
VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: record_drop
DELETE FROM detent_records WHERE kind = ? AND tenant = ? AND id = ?

-- name: workflow
SELECT record FROM detent_workflows WHERE tenant = ? AND id = ?

-- name: steps
SELECT record, tally FROM detent_steps INDEXED BY detent_steps_of_workflow WHERE tenant = ? AND workflow = ?

-- name: workflow_put
INSERT INTO detent_workflows (tenant, id, version, state, ended_at, record)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, state = excluded.state,
    ended_at = excluded.ended_at, record = excluded.record

-- name: step_put
INSERT INTO detent_steps (tenant, id, workflow, version, state, record) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, id) DO UPDATE SET version = excluded.version, state = excluded.state,
    record = excluded.record

-- name: step_tally
UPDATE detent_steps SET tally = ? WHERE tenant = ? AND id = ?

-- name: step_flips
UPDATE detent_steps SET flips = 1 WHERE tenant = ? AND id = ?

-- name: step_sweep
UPDATE detent_steps SET swept = 1 WHERE tenant = ? AND id = ?

-- name: erase_body
UPDATE detent_bodies SET payload = 'null', meta = '{}', tags = NULL, schema = NULL WHERE seq = ?

-- name: erase_result
DELETE FROM detent_results WHERE seq = ?

-- name: erase_failures
DELETE FROM detent_failures WHERE seq = ?

-- name: erase_logs
DELETE FROM detent_logs WHERE seq = ?

-- name: erase_checkpoint
DELETE FROM detent_checkpoints WHERE seq = ?

-- name: erase_note
DELETE FROM detent_notes WHERE seq = ?

-- name: tags_of
SELECT tags FROM detent_bodies WHERE seq = ?

-- name: tag_drop
DELETE FROM detent_tags WHERE tenant = ? AND tag = ? AND id = ?
