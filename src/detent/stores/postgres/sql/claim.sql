-- Claims: the lanes that are wanted and open, what each has to give to the merged order of all, and
-- then so many of each under a lock. A row that somebody else has locked is passed over; a lane never
-- locks more than it gives.

-- part: claiming
alive AS MATERIALIZED (
    SELECT FROM detent.workers
    WHERE id = $holder AND lost = 0 AND alive_until > $now::bigint
    FOR SHARE
), may AS MATERIALIZED (
    SELECT $wire::boolean OR EXISTS (SELECT FROM alive) AS claims
), again AS MATERIALIZED (
    -- The inner query is kept apart, or the tenant would be looked up in an index of all its jobs.
    SELECT j.id FROM unnest($leases::text[]) AS told (lease) CROSS JOIN LATERAL (
        SELECT j.tenant, j.id FROM detent.jobs AS j
        WHERE j.holder = $holder AND j.lease = told.lease OFFSET 0
    ) AS j WHERE j.tenant = $tenant
), open AS MATERIALIZED (
    SELECT l.lane, array_position($queues::text[], l.queue) AS turn, p.lease_us
    FROM detent.lanes AS l
    JOIN unnest($profiles::text[], $lease_spans::bigint[]) AS p (profile, lease_us)
        ON p.profile = l.profile
    WHERE l.tenant = $tenant AND l.queue = ANY ($queues) AND l.delivery = 'pull'
        AND ($types::text[] IS NULL OR l.type = ANY ($types))
        AND (SELECT claims FROM may) AND NOT EXISTS (SELECT FROM again)
        AND NOT EXISTS (
            SELECT FROM detent.gates AS g
            WHERE g.tenant = $tenant AND g.kind = 'queue' AND g.name = l.queue
                AND (g.closed OR g.queue_deleted)
        )
        AND NOT EXISTS (
            SELECT FROM detent.gates AS g
            WHERE g.tenant = $tenant AND g.kind = 'type' AND g.name = l.type AND g.closed
        )
), shares AS MATERIALIZED (
    -- With one open lane there is nothing to merge.
    SELECT lane, turn, lease_us, $wanted::bigint AS share FROM open
    WHERE (SELECT count(*) FROM open) = 1
    UNION ALL
    SELECT lane, turn, lease_us, count(*) FROM (
        SELECT open.lane, open.turn, open.lease_us
        FROM open CROSS JOIN LATERAL (
            SELECT j.priority, j.place, j.id FROM detent.jobs AS j
            WHERE j.lane = open.lane AND j.state = 'available' AND NOT j.held AND NOT j.gated
                AND (j.expires_at IS NULL OR j.expires_at > $now::bigint)
            ORDER BY j.priority DESC, j.place, j.id LIMIT $wanted::bigint
        ) AS best
        WHERE (SELECT count(*) FROM open) > 1
        ORDER BY open.turn, best.priority DESC, best.place, best.id LIMIT $wanted::bigint
    ) AS merged GROUP BY lane, turn, lease_us
), picked AS MATERIALIZED (
    SELECT shares.turn, shares.lease_us, best.*
    FROM shares CROSS JOIN LATERAL (
        SELECT j.priority, j.place, j.id FROM detent.jobs AS j
        WHERE j.lane = shares.lane AND j.state = 'available' AND NOT j.held AND NOT j.gated
            AND (j.expires_at IS NULL OR j.expires_at > $now::bigint)
        ORDER BY j.priority DESC, j.place, j.id LIMIT shares.share
        FOR UPDATE SKIP LOCKED
    ) AS best
), turns AS MATERIALIZED (
    SELECT id, lease_us, row_number() OVER (ORDER BY turn, priority DESC, place, id) AS number
    FROM picked
), taken AS (
    UPDATE detent.jobs AS j SET
        version = j.version + 1,
        state = 'active',
        previous = j.state,
        state_at = greatest($now::bigint, j.last_at),
        last_at = greatest($now::bigint, j.last_at),
        claimed_at = greatest($now::bigint, j.last_at),
        started_at = greatest($now::bigint, j.last_at),
        attempt = j.attempt + 1,
        run_at = NULL,
        returned_by = NULL,
        lease = ($leases::text[])[turns.number],
        holder = $holder,
        wire = $wire::boolean,
        lease_us = turns.lease_us,
        handed_until = NULL,
        wake_at = least(
            greatest($now::bigint, j.last_at) + j.active_us,
            j.force_at,
            greatest($now::bigint, j.last_at) + turns.lease_us
        )
    FROM turns WHERE j.tenant = $tenant AND j.id = turns.id
    RETURNING turns.number::int AS number, j.*
), leased AS (
    INSERT INTO detent.leases (lease, until)
    SELECT lease, $now::bigint + lease_us FROM taken WHERE wire
    ON CONFLICT (lease) DO UPDATE SET until = excluded.until
)

-- part: claim_events
SELECT 2 AS part, number AS turn, tenant, id AS record, version, last_at AS at, 'claim' AS name,
    'available' AS source, 'active' AS target, $actor AS actor, $actor_id AS actor_id,
    $command_id AS command_id, 'job' AS kind,
    ($rests::text[])[number] || coalesce(',"lease_us":' || lease_us, '') || '}' AS rest
FROM taken

-- part: claim_counts
SELECT lane, 'available' AS state, -1 AS count FROM taken
UNION ALL
SELECT lane, 'active', 1 FROM taken

-- part: claimed
{{taken}}, taken.wake_at, b.type, b.payload, b.meta, b.tags, b.retry, b.schema,
    CASE WHEN taken.has_result THEN (
        SELECT r.result FROM detent.results AS r
        WHERE r.tenant = taken.tenant AND r.id = taken.id
    ) END AS result,
    CASE WHEN taken.has_failures THEN (
        SELECT json_agg(
            json_build_array(
                f.attempt, f.at, f.code, f.message, f.type, f.details, f.backtrace
            ) ORDER BY f.number
        )::text
        FROM detent.failures AS f WHERE f.tenant = taken.tenant AND f.id = taken.id
    ) END AS errors

-- name: claim
WITH {{claiming}},
happened AS ({{claim_events}}),
changed AS ({{claim_counts}}),
{{recorded}}
SELECT one.*, {{claimed}}
FROM (
    SELECT 1 AS number, (SELECT claims FROM may) AS claims, EXISTS (SELECT FROM again) AS is_again
) AS one FULL JOIN taken USING (number)
LEFT JOIN detent.bodies AS b ON b.tenant = taken.tenant AND b.id = taken.id
ORDER BY coalesce(one.number, taken.number)

-- name: claimed_before
SELECT s.* FROM unnest($leases::text[]) WITH ORDINALITY AS told (lease, number)
CROSS JOIN LATERAL (
    SELECT j.tenant, j.id FROM detent.jobs AS j
    WHERE j.holder = $holder AND j.lease = told.lease OFFSET 0
) AS j
JOIN detent.stored AS s ON s.tenant = j.tenant AND s.id = j.id
WHERE j.tenant = $tenant
ORDER BY told.number
