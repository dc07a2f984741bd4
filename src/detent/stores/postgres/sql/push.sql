-- New jobs with their first events. An id that is in use makes the whole statement fail:
-- that is rare, and whoever sends it then asks first. Nearly all are fresh: they came by one event and
-- are nothing yet but what was asked for. One alone is told in plain values.

-- part: tagged
tagged AS (
    INSERT INTO detent.tags (tenant, tag, id)
    SELECT * FROM unnest($tag_tenants::text[], $tag_texts::text[], $tag_ids::text[])
)

-- part: arriving
told AS (
    SELECT * FROM unnest($fresh::detent.told_fresh[])
), made AS (
    INSERT INTO detent.jobs (
        tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
        created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back, run_at,
        expires_at, available_us, pending_us, active_us, wire, enqueued_at, ready_at, rerun_of, wake_at,
        lane, type, payload, meta, tags, retry, schema, key
    )
    SELECT tenant, id, 1, state, profile, queue, priority, delivery, allowed, losses_allowed,
        at, at, at, place, held, 0, 0, 0, 0, run_at,
        expires_at, available_us, pending_us, active_us, false,
        CASE WHEN state = 'available' THEN at END, CASE WHEN state = 'available' THEN at END,
        rerun_of, wake_at, lane, type, payload, meta, tags, retry, schema, key
    FROM told
), counted AS (
    INSERT INTO detent.tallies (lane, state, count)
    SELECT lane, state, count(*) FROM told GROUP BY lane, state
)

-- part: arrived
INSERT INTO detent.events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT tenant, id, 1, at, 'enqueue', NULL, state, actor, actor_id, command_id, 'job', rest FROM told

-- part: arriving_alone
made AS (
    INSERT INTO detent.jobs (
        tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
        created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back, run_at,
        expires_at, available_us, pending_us, active_us, wire, enqueued_at, ready_at, rerun_of, wake_at,
        lane, type, payload, meta, tags, retry, schema, key
    ) VALUES (
        $tenant::text, $id::text, 1, $state::text, $profile::text, $queue::text, $priority::bigint, $delivery::text, $allowed::bigint,
        $losses_allowed::bigint, $at::bigint, $at, $at, $place::bigint, $held::boolean, 0, 0, 0, 0,
        $run_at::bigint, $expires_at::bigint, $available_us::bigint, $pending_us::bigint,
        $active_us::bigint, false, CASE WHEN $state::text = 'available' THEN $at END,
        CASE WHEN $state::text = 'available' THEN $at END, $rerun_of::text, $wake_at::bigint, $lane::int,
        $type::text, $payload::text, $meta::text, $tags::text, $retry::text, $schema::text, $key::text
    )
), counted AS (
    INSERT INTO detent.tallies (lane, state, count) VALUES ($lane, $state::text, 1)
)

-- part: arrived_alone
INSERT INTO detent.events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
) VALUES (
    $tenant::text, $id::text, 1, $at, 'enqueue', NULL, $state::text, $actor::text, $actor_id::text,
    $command_id::text, 'job', $rest::text
)

-- name: enqueue_one
WITH {{arriving_alone}}
{{arrived_alone}}

-- name: enqueue_one_and_tell
-- The others hear of it by its own commit. Too often that would make commits wait for each other.
WITH {{arriving_alone}}, arrived AS (
{{arrived_alone}}
)
SELECT pg_notify('detent', $word::text)

-- name: enqueue
WITH {{arriving}}
{{arrived}}

-- name: enqueue_tagged
WITH {{arriving}}, {{tagged}}
{{arrived}}

-- name: births
-- Jobs that stand alike: what each has of its own are its id, moment, place and payload.
WITH told AS (
    SELECT * FROM unnest(
        $ids::text[], string_to_array($ats::text, ',')::bigint[], string_to_array($places::text, ',')::bigint[],
        $payloads::text[]
    ) AS t (id, at, place, payload)
), made AS (
    INSERT INTO detent.jobs (
        tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
        created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back,
        available_us, pending_us, active_us, wire, enqueued_at, ready_at, wake_at, lane,
        type, payload, meta, tags, retry, schema, key
    )
    SELECT $tenant::text, id, 1, $state::text, $profile::text, $queue::text, $priority::bigint,
        $delivery::text, $allowed::bigint, $losses_allowed::bigint, at, at, at, place,
        $held::boolean, 0, 0, 0, 0, $available_us::bigint, $pending_us::bigint, $active_us::bigint,
        false, at, at, at + $wakes_after::bigint, $lane::int,
        $type::text, payload, $meta::text, $tags::text, $retry::text, $schema::text, $key::text
    FROM told
), counted AS (
    INSERT INTO detent.tallies (lane, state, count)
    VALUES ($lane, $state::text, cardinality($ids::text[]))
)
INSERT INTO detent.events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT $tenant::text, id, 1, at, 'enqueue', NULL, $state::text, $actor::text, $actor_id::text, id,
    'job', $before::text || place || $after::text
FROM told

-- name: push
WITH told AS (
    SELECT * FROM unnest($news::detent.told_new[])
), made AS (
    INSERT INTO detent.jobs (
        {{job}}, wake_at, lane, fingerprint, gated, type, payload, meta, tags, retry, schema, key
    )
    SELECT {{job}}, wake_at, lane, fingerprint, gated, type, payload, meta, tags, retry, schema, key
    FROM told ORDER BY tenant, id
), {{tagged}}, leased AS (
    INSERT INTO detent.leases (lease, until, tenant, id)
    SELECT lease, $now::bigint + coalesce(lease_us, 0), tenant, id FROM told
    WHERE wire AND lease IS NOT NULL
    ON CONFLICT (lease) DO UPDATE SET
        until = excluded.until, tenant = excluded.tenant, id = excluded.id
), counted AS (
    INSERT INTO detent.tallies (lane, state, count)
    SELECT lane, state, count(*) FROM told GROUP BY lane, state
)
INSERT INTO detent.events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
)
SELECT e.tenant, e.record, e.version, e.at, e.name, e.source, e.target, e.actor, e.actor_id,
    e.command_id, e.kind, e.rest
FROM unnest($events::detent.told_event[]) WITH ORDINALITY AS e
ORDER BY e.ordinality

-- name: lanes_known
SELECT l.digest, l.lane FROM detent.lanes AS l WHERE l.digest = ANY ($digests::bytea[])

-- name: lanes_made
INSERT INTO detent.lanes (digest, tenant, queue, type, profile, delivery, key)
SELECT * FROM unnest(
    $digests::bytea[], $tenants::text[], $queues::text[], $types::text[], $profiles::text[],
    $deliveries::text[], $keys::text[]
) AS told (digest, tenant, queue, type, profile, delivery, key) ORDER BY digest
ON CONFLICT DO NOTHING
