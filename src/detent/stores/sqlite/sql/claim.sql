-- name: lanes
SELECT type, profile, key FROM detent_lanes
WHERE tenant = :tenant AND queue = :queue AND delivery = :delivery AND count > 0

-- name: lane
SELECT -priority, place, id, seq, workflow, step FROM detent_jobs
WHERE tenant = ? AND queue = ? AND delivery = ? AND type = ? AND profile = ? AND key IS ?
    AND state = 'available' AND held = 0 AND gated = 0
    AND (expires_at IS NULL OR expires_at > ?)
ORDER BY priority DESC, place, id

-- name: lane_next
-- The first of a lane in one go, and how many of them stand in a step, which must be looked at.
SELECT json_group_array(seq), count(step) FROM (
    SELECT seq, step FROM detent_jobs
    WHERE tenant = ? AND queue = ? AND delivery = ? AND type = ? AND profile = ? AND key IS ?
        AND state = 'available' AND held = 0 AND gated = 0
        AND (expires_at IS NULL OR expires_at > ?)
    ORDER BY priority DESC, place, id LIMIT ?
)

-- name: kinds
-- From one type and profile to the next, over all their keys at once.
WITH RECURSIVE types (type) AS (
    SELECT min(type) FROM detent_lanes
    WHERE tenant = :tenant AND queue = :queue AND delivery = :delivery
    UNION ALL
    SELECT (
        SELECT min(type) FROM detent_lanes
        WHERE tenant = :tenant AND queue = :queue AND delivery = :delivery AND type > types.type
    ) FROM types WHERE types.type IS NOT NULL
), kinds (type, profile) AS (
    SELECT types.type, (
        SELECT min(profile) FROM detent_lanes
        WHERE tenant = :tenant AND queue = :queue AND delivery = :delivery AND type = types.type
    ) FROM types WHERE types.type IS NOT NULL
    UNION ALL
    SELECT kinds.type, (
        SELECT min(profile) FROM detent_lanes
        WHERE tenant = :tenant AND queue = :queue AND delivery = :delivery
            AND type = kinds.type AND profile > kinds.profile
    ) FROM kinds WHERE kinds.profile IS NOT NULL
)
SELECT type, profile FROM kinds WHERE profile IS NOT NULL

-- name: lane_of_keys
SELECT -priority, place, id, seq, workflow, step FROM detent_jobs
WHERE tenant = ? AND queue = ? AND delivery = ? AND type = ? AND profile = ? AND key IS NOT NULL
    AND state = 'available' AND held = 0 AND gated = 0
    AND (expires_at IS NULL OR expires_at > ?)
ORDER BY priority DESC, place, id

-- name: jobs_taken
-- The same as job_taken, for many at once: each text begins with the row and ends with the lease.
UPDATE detent_jobs SET
    version = ?2, state = ?3, state_at = ?4, last_at = ?5, previous = ?6, attempt = ?7, run_at = ?8,
    lease = substr(taken.value, 1 + instr(taken.value, ' ')), holder = ?9, wire = ?10,
    lease_us = ?11, claimed_at = ?12, started_at = ?13, returned_by = ?14, wake_at = ?15
FROM json_each(?1) AS taken
WHERE seq = CAST(taken.value AS INTEGER) AND version = ?16

-- name: events_taken
-- Their events: each text begins with the lease and ends with the record.
INSERT INTO detent_events (
    pos, tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT ?2 + taken.key, ?3, substr(taken.value, 1 + instr(taken.value, ' ')), ?4, ?5, ?6, ?7, ?8, ?9,
    ?10, ?11, ?12, ?13 || substr(taken.value, 1, instr(taken.value, ' ') - 1) || ?14
FROM json_each(?1) AS taken

-- name: gate_job
UPDATE detent_jobs SET gated = 1 WHERE seq = ?

-- name: flipping
SELECT tenant, id, workflow FROM detent_steps WHERE flips = 1 LIMIT ?

-- name: flip
UPDATE detent_jobs SET gated = 0 WHERE seq IN (
    SELECT seq FROM detent_jobs
    WHERE tenant = ? AND step = ? AND gated = 1 AND ({{job_parked}})
    ORDER BY priority DESC, place, id LIMIT ?
)

-- name: flipped
UPDATE detent_steps SET flips = 0 WHERE tenant = ? AND id = ?

-- name: limit
SELECT concurrency, rate, period_us, spacing_us, period_at, starts, last_at FROM detent_limits
WHERE tenant = ? AND kind = ? AND name = ?

-- name: any_limit
SELECT 1 FROM detent_limits LIMIT 1

-- name: limits
SELECT kind, name, concurrency, rate, period_us, spacing_us, period_at, starts, last_at
FROM detent_limits WHERE tenant = ? ORDER BY kind, name

-- name: limit_put
INSERT INTO detent_limits (tenant, kind, name, concurrency, rate, period_us, spacing_us)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (tenant, kind, name) DO UPDATE SET
    concurrency = excluded.concurrency, rate = excluded.rate,
    period_us = excluded.period_us, spacing_us = excluded.spacing_us

-- name: limit_drop
DELETE FROM detent_limits WHERE tenant = ? AND kind = ? AND name = ?

-- name: limit_use
UPDATE detent_limits SET period_at = ?, starts = ?, last_at = ?
WHERE tenant = ? AND kind = ? AND name = ?

-- name: held_in_queue
SELECT coalesce(sum(count), 0) FROM detent_counters
WHERE tenant = ? AND queue = ? AND ({{job_in_hands}})

-- name: held_of_key
SELECT count(*) FROM detent_jobs WHERE tenant = ? AND key = ? AND key IS NOT NULL
    AND lease IS NOT NULL

-- name: served
SELECT turn FROM detent_served WHERE tenant = ? AND fair = ? AND name = ?

-- name: served_latest
SELECT coalesce(max(turn), 0) FROM detent_served WHERE tenant = ? AND fair = ?

-- name: served_put
INSERT OR REPLACE INTO detent_served (tenant, fair, name, turn) VALUES (?, ?, ?, ?)

-- name: holding
SELECT seq, lease, tenant FROM detent_jobs
WHERE holder = ? AND lease IS NOT NULL AND lease IN (SELECT value FROM json_each(?))

-- name: worker
SELECT alive_until, lost FROM detent_workers WHERE id = ?

-- name: gate
SELECT closed, opened_at, queue_deleted FROM detent_gates WHERE tenant = ? AND kind = ? AND name = ?

-- name: stored_seq
SELECT * FROM detent_stored WHERE seq = ?

-- name: stored_seqs
SELECT * FROM detent_stored WHERE seq IN (SELECT value FROM json_each(?))

-- name: head_seqs
-- The same without what may be large: pages of these columns are not even read.
SELECT
    seq, tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, previous, place, held, attempt, failures, losses, handed_back,
    run_at, expires_at, available_us, pending_us, active_us, lease, holder, wire, lease_us,
    enqueued_at, ready_at, activated_at, claimed_at, started_at, received_at, start_us, ended_at,
    erased_at, cancel_at, force_at, cause, returned_by, delay_us, rerun_of, workflow, step,
    wake_at, type, '' AS payload, '{}' AS meta, tags, retry, schema, key, NULL AS result,
    NULL AS checkpoint, note_at, note_attempt, percent, text, is_unique
FROM detent_stored WHERE seq IN (SELECT value FROM json_each(?))

-- name: stored_like
-- Of these jobs those that stand like another one, with what is their own: one answer, so that nobody
-- is asked for the interpreter's lock between two rows. None has moved yet, so none has a result, a
-- checkpoint or a note; a large one is read by itself.
SELECT json_group_array(json_array(
    j.seq, j.id, j.created_at, j.place, j.enqueued_at, j.ready_at,
    b.payload, b.meta, b.tags, b.retry, b.schema
))
FROM json_each(?1) AS asked
CROSS JOIN detent_jobs AS j ON j.seq = asked.value
CROSS JOIN detent_bodies AS b ON b.seq = asked.value
WHERE j.version = 1 AND j.is_unique = 0 AND j.last_at <= ?2 AND j.tenant = ?3
    AND length(b.payload) + length(b.meta) < 10000
    AND (
        j.state, j.profile, j.queue, j.priority, j.delivery, j.allowed, j.losses_allowed, j.previous,
        j.held, j.attempt, j.failures, j.losses, j.handed_back, j.run_at, j.expires_at,
        j.available_us, j.pending_us, j.active_us, j.lease, j.holder, j.wire, j.lease_us,
        j.activated_at, j.claimed_at, j.started_at, j.received_at, j.start_us, j.ended_at,
        j.erased_at, j.cancel_at, j.force_at, j.cause, j.returned_by, j.delay_us, j.rerun_of,
        j.workflow, j.step, j.type, j.key
    ) IS (
        ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
        ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, ?33, ?34, ?35, ?36, ?37, ?38, ?39, ?40,
        ?41, ?42
    )

-- name: head_failures
SELECT seq, attempt, at, code, message, type, NULL, NULL FROM detent_failures
WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY row

-- name: stored_failures
SELECT seq, attempt, at, code, message, type, details, backtrace FROM detent_failures
WHERE seq IN (SELECT value FROM json_each(?)) ORDER BY row
