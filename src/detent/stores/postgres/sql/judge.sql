-- What the fences ask before anything is written, for many units at once, each row under a lock.

-- name: heads
SELECT {{job}}, lane, fingerprint FROM detent.jobs AS j
WHERE (j.tenant, j.id) IN (
    SELECT told.tenant, told.id FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
)
ORDER BY j.tenant, j.id FOR UPDATE

-- name: lane_names
SELECT lane, type, key FROM detent.lanes WHERE lane = ANY ($lanes::int[])

-- name: workflows_locked
SELECT w.tenant, w.id, w.record FROM detent.workflows AS w
WHERE (w.tenant, w.id) IN (
    SELECT told.tenant, told.id FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
)
ORDER BY w.tenant, w.id FOR UPDATE

-- name: workflows_read
SELECT w.tenant, w.id, w.record FROM detent.workflows AS w
WHERE (w.tenant, w.id) IN (
    SELECT told.tenant, told.id FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
)

-- name: steps_read
SELECT s.tenant, s.workflow, s.record, s.tally, s.swept FROM detent.steps AS s
WHERE (s.tenant, s.workflow) IN (
    SELECT told.tenant, told.id FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
)

-- name: records_locked
SELECT r.kind, r.tenant, r.id, r.version, r.data, r.wake_at, r.command_id FROM detent.records AS r
WHERE (r.kind, r.tenant, r.id) IN (
    SELECT told.kind, told.tenant, told.id
    FROM unnest($kinds::text[], $tenants::text[], $ids::text[]) AS told (kind, tenant, id)
)
ORDER BY r.kind, r.tenant, r.id FOR UPDATE

-- name: own
SELECT DISTINCT told.number
FROM unnest($numbers::int[], $tenants::text[], $records::text[], $commands::text[])
    AS told (number, tenant, record, command_id)
JOIN detent.events AS e ON e.tenant = told.tenant AND e.record = told.record
    AND e.command_id = told.command_id

-- name: leases_locked
SELECT lease, until FROM detent.leases WHERE lease = ANY ($leases::text[]) ORDER BY lease FOR UPDATE

-- name: workers_shared
SELECT id, alive_until, lost FROM detent.workers WHERE id = ANY ($workers::text[])
ORDER BY id FOR SHARE

-- name: workers_reopened
UPDATE detent.workers SET lost = 1 WHERE id = ANY ($workers::text[]) AND lost = 2

-- name: keys_locked
SELECT pg_advisory_xact_lock(key) FROM (
    SELECT DISTINCT key FROM unnest($keys::bigint[]) AS told (key) ORDER BY key
) AS ordered

-- name: promised
SELECT i.tenant, i.key, i.digest, {{job_of_j}}
FROM unnest($tenants::text[], $keys::text[]) AS told (tenant, key)
JOIN detent.idempotency AS i ON i.tenant = told.tenant AND i.key = told.key
JOIN detent.jobs AS j ON j.tenant = i.tenant AND j.id = i.id
WHERE i.expires_at > $now::bigint

-- name: counting
SELECT told.number, one.seq, {{job_of_j}}
FROM unnest(
    $numbers::int[], $tenants::text[], $fingerprints::text[], $states::text[], $sinces::bigint[],
    $mosts::bigint[]
) AS told (number, tenant, fingerprint, state, since, most)
CROSS JOIN LATERAL (
    -- Of those that were made at the same moment, the one that was written first is the oldest.
    SELECT j.tenant, j.id, e.seq FROM detent.jobs AS j
    JOIN detent.events AS e ON e.tenant = j.tenant AND e.record = j.id AND e.version = 1
    WHERE j.tenant = told.tenant AND j.fingerprint = told.fingerprint
        AND j.state = told.state AND j.created_at >= told.since
    ORDER BY j.created_at, e.seq LIMIT told.most
) AS one
JOIN detent.jobs AS j ON j.tenant = one.tenant AND j.id = one.id

-- name: promise
INSERT INTO detent.idempotency (tenant, key, digest, expires_at, id)
SELECT * FROM unnest(
    $tenants::text[], $keys::text[], $digests::text[], $expiries::bigint[], $ids::text[]
) AS told (tenant, key, digest, expires_at, id) ORDER BY tenant, key
ON CONFLICT (tenant, key) DO UPDATE SET
    digest = excluded.digest, expires_at = excluded.expires_at, id = excluded.id

-- name: rearm
UPDATE detent.jobs AS j SET
    wake_at = CASE WHEN j.wire AND j.lease = told.lease
        THEN least(told.wake_at, (SELECT l.until FROM detent.leases AS l WHERE l.lease = j.lease))
        ELSE told.wake_at END,
    handed_until = NULL,
    has_result = j.has_result OR told.with_result,
    has_failures = j.has_failures OR told.with_failure,
    has_checkpoint = j.has_checkpoint OR told.with_checkpoint
FROM unnest(
    $tenants::text[], $ids::text[], $wakes::bigint[], $leases::text[], $with_result::boolean[],
    $with_failure::boolean[], $with_checkpoint::boolean[]
) AS told (tenant, id, wake_at, lease, with_result, with_failure, with_checkpoint)
WHERE j.tenant = told.tenant AND j.id = told.id

-- name: record
INSERT INTO detent.events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT e.tenant, e.record, e.version, e.at, e.name, e.source, e.target, e.actor, e.actor_id,
    e.command_id, e.kind, e.rest
FROM unnest($events::detent.told_event[]) WITH ORDINALITY AS e
ORDER BY e.ordinality
