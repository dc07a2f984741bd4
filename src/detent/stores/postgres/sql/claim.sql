-- Claims: the lanes that are wanted and open, what each has to give to the merged order of all, and
-- then so many of each under a lock. A row that somebody else has locked is passed over; a lane never
-- locks more than it gives. In a lane with a mark, what stands at or before the mark is not looked at.

-- part: claimable_in
j.lane = {{apart}}.lane AND j.state = 'available' AND NOT j.held AND NOT j.gated
    AND (~j.priority, j.place, j.id) > ({{apart}}.rank, {{apart}}.place, {{apart}}.id)
    AND (j.expires_at IS NULL OR j.expires_at > $now::bigint)

-- part: claiming
named AS MATERIALIZED (
    -- One text is taken apart here faster than a hundred are sent one by one.
    SELECT string_to_array($leases::text, E'\x1f') AS leases
), alive AS MATERIALIZED (
    SELECT FROM detent.workers
    WHERE id = $holder AND lost = 0 AND alive_until > $now::bigint
), may AS MATERIALIZED (
    -- Under limits, and while jobs of a step that opened wait to be let in, claims are made with
    -- care: by questions, not by this statement.
    SELECT $wire::boolean OR EXISTS (SELECT FROM alive) AS claims,
        EXISTS (SELECT FROM detent.limits WHERE tenant = $tenant) AS is_limited,
        EXISTS (SELECT FROM detent.steps WHERE flips AND tenant = $tenant) AS is_flipping
), again AS MATERIALIZED (
    -- Hardly anything stands between the first and the last of them: one look instead of hundreds.
    SELECT FROM detent.jobs AS j
    WHERE j.holder = $holder AND j.lease >= $first_lease AND j.lease <= $last_lease
        AND EXISTS (SELECT FROM unnest((SELECT leases FROM named)) AS one (lease) WHERE one.lease = j.lease)
    LIMIT 1
), open AS MATERIALIZED (
    SELECT l.lane, array_position($queues::text[], l.queue) AS turn,
        (string_to_array($lease_spans::text, ',', 'None')::bigint[])[
            array_position($profiles::text[], l.profile)
        ] AS lease_us,
        -- Nothing stands before this.
        coalesce(m.rank, -9223372036854775808) AS rank,
        coalesce(m.place, -9223372036854775808) AS place, coalesce(m.id, '') AS id
    FROM detent.lanes AS l
    LEFT JOIN unnest(
        string_to_array($mark_lanes::text, ',')::int[], string_to_array($mark_ranks::text, ',')::bigint[],
        string_to_array($mark_places::text, ',')::bigint[], $mark_ids::text[]
    ) AS m (lane, rank, place, id) ON m.lane = l.lane
    WHERE l.tenant = $tenant AND l.queue = ANY ($queues) AND l.delivery = $delivery
        AND l.profile = ANY ($profiles) AND ($types::text[] IS NULL OR l.type = ANY ($types))
        AND (SELECT claims AND NOT is_limited AND NOT is_flipping FROM may)
        AND NOT EXISTS (SELECT FROM again)
        {{apart}}
        AND NOT EXISTS (
            SELECT FROM detent.gates AS g
            WHERE g.tenant = $tenant AND g.kind = 'queue' AND g.name = l.queue
                AND (g.closed OR g.queue_deleted)
        )
        AND NOT EXISTS (
            SELECT FROM detent.gates AS g
            WHERE g.tenant = $tenant AND g.kind = 'type' AND g.name = l.type AND g.closed
        )
), sure AS MATERIALIZED (
    -- Nobody declares the holder lost meanwhile. A lock is a write, with a sync: whoever finds
    -- nothing needs none.
    SELECT FROM detent.workers
    WHERE id = $holder AND lost = 0 AND alive_until > $now::bigint AND EXISTS (
        SELECT FROM open CROSS JOIN LATERAL (
            SELECT FROM detent.jobs AS j WHERE {{claimable_in open}} LIMIT 1
        ) AS one
    )
    FOR SHARE
), ours AS MATERIALIZED (
    SELECT * FROM open WHERE $wire::boolean OR EXISTS (SELECT FROM sure)
), shares AS MATERIALIZED (
    -- With one open lane there is nothing to merge.
    SELECT lane, turn, lease_us, rank, place, id, $wanted::bigint AS share FROM ours
    WHERE (SELECT count(*) FROM ours) = 1
    UNION ALL
    SELECT lane, turn, lease_us, rank, place, id, count(*) FROM (
        SELECT ours.*
        FROM ours CROSS JOIN LATERAL (
            SELECT ~j.priority AS rank, j.place, j.id FROM detent.jobs AS j
            WHERE {{claimable_in ours}}
            ORDER BY ~j.priority, j.place, j.id LIMIT $wanted::bigint
        ) AS best
        WHERE (SELECT count(*) FROM ours) > 1
        ORDER BY ours.turn, best.rank, best.place, best.id LIMIT $wanted::bigint
    ) AS merged GROUP BY lane, turn, lease_us, rank, place, id
), picked AS MATERIALIZED (
    SELECT shares.turn, shares.lease_us, best.*
    FROM shares CROSS JOIN LATERAL (
        SELECT ~j.priority AS rank, j.place, j.id, j.workflow, j.ctid AS tid FROM detent.jobs AS j
        WHERE {{claimable_in shares}}
        ORDER BY ~j.priority, j.place, j.id LIMIT shares.share
        FOR UPDATE SKIP LOCKED
    ) AS best
), turns AS MATERIALIZED (
    SELECT tid, lease_us, row_number() OVER (ORDER BY turn, rank, place, id) AS number
    -- What a job does is heard by its workflow, which must be asked first.
    FROM picked WHERE NOT EXISTS (SELECT FROM picked AS one WHERE one.workflow IS NOT NULL)
), taken AS (
    UPDATE detent.jobs AS j SET
        version = j.version + 1,
        state = $state,
        previous = j.state,
        state_at = greatest($now::bigint, j.last_at),
        last_at = greatest($now::bigint, j.last_at),
        claimed_at = greatest($now::bigint, j.last_at),
        started_at = CASE WHEN $is_push::boolean THEN j.started_at
            ELSE greatest($now::bigint, j.last_at) END,
        attempt = j.attempt + 1,
        run_at = NULL,
        returned_by = NULL,
        lease = (SELECT leases FROM named)[turns.number],
        holder = $holder,
        wire = $wire::boolean,
        lease_us = turns.lease_us,
        handed_until = NULL,
        wake_at = least(
            greatest($now::bigint, j.last_at)
                + CASE WHEN $is_push::boolean THEN j.pending_us ELSE j.active_us END,
            CASE WHEN NOT $is_push::boolean THEN j.force_at END,
            greatest($now::bigint, j.last_at) + turns.lease_us
        )
    -- Locked rows stay where they are. One that somebody moved while this statement was on its way
    -- to it is not found again, and said to be missed.
    FROM turns WHERE j.ctid = turns.tid
    -- What other parts ask about comes first: nobody takes a row apart further than he needs.
    RETURNING turns.number::int AS number, j.tenant, j.id, j.version, j.last_at, j.state, j.lane,
        j.lease_us, {{claimed_more}}, j.wake_at, j.type, j.payload, j.meta, j.tags, j.retry, j.schema, j.key,
        j.has_result, j.has_failures, j.has_note,
        j.has_checkpoint
), leased AS (
    INSERT INTO detent.leases (lease, until, tenant, id)
    SELECT lease, $now::bigint + lease_us, tenant, id FROM taken WHERE wire
    ON CONFLICT (lease) DO UPDATE SET
        until = excluded.until, tenant = excluded.tenant, id = excluded.id
)

-- part: claim_events
SELECT 2 AS part, number AS turn, tenant, id AS record, version, last_at AS at, $event AS name,
    'available' AS source, state AS target, $actor AS actor, $actor_id AS actor_id,
    $command_id AS command_id, 'job' AS kind,
    '{"lease":' || to_json(lease)::text || $rest::text || coalesce(',"lease_us":' || lease_us, '')
        || '}' AS rest
FROM taken

-- part: claim_counts
SELECT one.lane, told.state, told.sign * one.count AS count
FROM (SELECT lane, count(*) AS count FROM taken GROUP BY lane) AS one
CROSS JOIN (VALUES ('available', -1), ($state, 1)) AS told (state, sign)

-- part: claimed
-- What is kept beside a job is asked for by itself: hardly any job that is claimed has something.
taken.number, taken.lane,
    taken.has_result OR taken.has_failures OR taken.has_note OR taken.has_checkpoint AS has_asides,
    {{taken}}, taken.wake_at, taken.type, taken.payload, taken.meta, taken.tags, taken.retry,
    taken.schema, taken.key,
    NULL::text AS result, NULL::text AS errors, NULL::text AS note, NULL::text AS checkpoint

-- part: answers
(SELECT claims FROM may) AS claims, EXISTS (SELECT FROM again) AS is_again,
    (SELECT is_limited FROM may) AS is_limited,
    (SELECT is_limited OR is_flipping FROM may)
        OR EXISTS (SELECT FROM picked WHERE workflow IS NOT NULL) AS needs_care,
    (SELECT count(*) FROM turns) > (SELECT count(*) FROM taken) AS has_missed

-- name: claim
WITH {{claiming}},
happened AS ({{claim_events}}),
changed AS ({{claim_counts}}),
{{recorded}}
SELECT {{answers}}, {{claimed}}
FROM (SELECT) AS one LEFT JOIN taken ON true

-- name: claimed_before
SELECT s.* FROM unnest($leases::text[]) WITH ORDINALITY AS told (lease, number)
CROSS JOIN LATERAL (
    SELECT j.tenant, j.id FROM detent.jobs AS j
    WHERE j.holder = $holder AND j.lease = told.lease OFFSET 0
) AS j
JOIN detent.stored AS s ON s.tenant = j.tenant AND s.id = j.id
ORDER BY told.number

-- name: claim_lock
SELECT pg_advisory_xact_lock($key::bigint)

-- name: standing
WITH alive AS MATERIALIZED (
    SELECT alive_until, lost FROM detent.workers WHERE id = $holder FOR SHARE
)
SELECT (SELECT alive_until FROM alive) AS alive_until, (SELECT lost FROM alive) AS lost,
    EXISTS (
        SELECT FROM detent.jobs AS j
        WHERE j.holder = $holder AND j.lease = ANY ($leases::text[])
    ) AS is_again,
    EXISTS (SELECT FROM detent.steps WHERE flips AND tenant = $tenant) AS is_flipping,
    EXISTS (SELECT FROM detent.limits WHERE tenant = $tenant) AS is_limited

-- name: lanes_open
SELECT l.lane, l.tenant, l.queue, l.type, l.profile, l.delivery, l.key,
    q.opened_at AS queue_opened_at, t.opened_at AS type_opened_at
FROM detent.lanes AS l
LEFT JOIN detent.gates AS q ON q.tenant = l.tenant AND q.kind = 'queue' AND q.name = l.queue
LEFT JOIN detent.gates AS t ON t.tenant = l.tenant AND t.kind = 'type' AND t.name = l.type
WHERE l.tenant = $tenant AND l.queue = ANY ($queues::text[]) AND l.delivery = $delivery
    AND l.profile = ANY ($profiles::text[]) AND ($types::text[] IS NULL OR l.type = ANY ($types))
    AND (q.name IS NULL OR NOT (q.closed OR q.queue_deleted))
    AND (t.name IS NULL OR NOT t.closed)

-- name: lane_heads
SELECT told.lane, j.priority, j.place, j.id, j.workflow, j.step
FROM unnest($lanes::int[]) AS told (lane) CROSS JOIN LATERAL (
    SELECT j.priority, j.place, j.id, j.workflow, j.step FROM detent.jobs AS j
    WHERE j.lane = told.lane AND j.state = 'available' AND NOT j.held AND NOT j.gated
        AND (j.expires_at IS NULL OR j.expires_at > $now::bigint)
    ORDER BY ~j.priority, j.place, j.id LIMIT $most::bigint
) AS j
ORDER BY told.lane, ~j.priority, j.place, j.id

-- name: lane_next
SELECT j.priority, j.place, j.id, j.workflow, j.step FROM detent.jobs AS j
WHERE j.lane = $lane AND j.state = 'available' AND NOT j.held AND NOT j.gated
    AND (j.expires_at IS NULL OR j.expires_at > $now::bigint)
    AND (~j.priority, j.place, j.id) > (~$priority::bigint, $place::bigint, $id::text)
ORDER BY ~j.priority, j.place, j.id LIMIT $most::bigint

-- name: picked
SELECT j.id FROM (
    -- Kept apart, or they would be looked for among all that is available.
    SELECT j.id, j.state, j.held, j.gated FROM detent.jobs AS j
    WHERE j.tenant = $tenant AND j.id = ANY ($ids::text[])
    ORDER BY j.id OFFSET 0 FOR UPDATE SKIP LOCKED
) AS j WHERE j.state = 'available' AND NOT j.held AND NOT j.gated

-- name: shut
UPDATE detent.jobs SET gated = true
WHERE tenant = $tenant AND id = ANY ($ids::text[]) AND state = 'available'

-- name: flipping
SELECT tenant, id, workflow FROM detent.steps WHERE flips AND tenant = $tenant LIMIT $most::bigint

-- name: flip
UPDATE detent.jobs AS j SET gated = false
FROM (
    SELECT one.tenant, one.id FROM detent.jobs AS one
    WHERE one.tenant = $tenant AND one.step = $step AND one.gated
        AND one.step IS NOT NULL AND one.state = ANY (ARRAY[{{parked}}])
    ORDER BY one.priority DESC, one.place, one.id LIMIT $most::bigint
    FOR UPDATE SKIP LOCKED
) AS chosen
WHERE j.tenant = chosen.tenant AND j.id = chosen.id
RETURNING j.id

-- name: flipped
UPDATE detent.steps SET flips = false
WHERE tenant = $tenant AND id = $step AND ($is_closed::boolean OR NOT EXISTS (
    SELECT FROM detent.jobs AS one
    WHERE one.tenant = $tenant AND one.step = $step AND one.gated
        AND one.step IS NOT NULL AND one.state = ANY (ARRAY[{{parked}}])
))

-- name: limits_locked
SELECT kind, name, concurrency, rate, period_us, spacing_us, period_at, starts, last_at
FROM detent.limits
WHERE tenant = $tenant AND (kind, name) IN (
    SELECT 'queue', one FROM unnest($queues::text[]) AS told (one)
    UNION ALL
    SELECT 'key', one FROM unnest($keys::text[]) AS told (one)
)
ORDER BY kind, name FOR UPDATE

-- part: held_in
-- Kept apart, so that it is asked lane by lane.
SELECT t.count FROM detent.tallies AS t
WHERE t.lane = {{apart}}.lane AND t.state = ANY (ARRAY[{{in_hands}}]) OFFSET 0

-- name: in_hands
SELECT 'queue' AS kind, l.queue AS name, sum(t.count)::bigint AS count
FROM detent.lanes AS l CROSS JOIN LATERAL ({{held_in l}}) AS t
WHERE l.tenant = $tenant AND l.queue = ANY ($queues::text[])
GROUP BY l.queue
UNION ALL
SELECT 'key', l.key, sum(t.count)::bigint
FROM detent.lanes AS l CROSS JOIN LATERAL ({{held_in l}}) AS t
WHERE l.tenant = $tenant AND l.key = ANY ($keys::text[]) AND l.key <> ''
GROUP BY l.key

-- name: limits_used
UPDATE detent.limits AS l SET
    period_at = told.period_at, starts = told.starts, last_at = told.last_at
FROM unnest(
    $kinds::text[], $names::text[], $period_ats::bigint[], $starts::bigint[], $last_ats::bigint[]
) AS told (kind, name, period_at, starts, last_at)
WHERE l.tenant = $tenant AND l.kind = told.kind AND l.name = told.name

-- name: served
SELECT name, turn FROM detent.served
WHERE tenant = $tenant AND fair = $fair AND name = ANY ($names::text[])

-- name: served_latest
SELECT coalesce(max(turn), 0) FROM detent.served

-- name: served_put
INSERT INTO detent.served (tenant, fair, name, turn)
SELECT $tenant, $fair, name, turn FROM unnest($names::text[], $turns::bigint[]) AS told (name, turn)
ON CONFLICT (tenant, fair, name) DO UPDATE SET turn = excluded.turn
