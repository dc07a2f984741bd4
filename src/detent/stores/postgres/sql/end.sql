-- Ends: jobs that complete alike, at one moment and by one holder. What they share is told once, and what
-- each has of its own column by column, as one text that is taken apart here. A completion changes less
-- than other reports do: the rest is as it was at the version that it is fenced by.

-- part: ends
held AS (
    UPDATE detent.jobs AS j SET
        version = j.version + 1,
        state = $end_state,
        state_at = $end_at::bigint,
        last_at = $end_at,
        previous = $end_source,
        lease = NULL,
        wire = false,
        lease_us = NULL,
        received_at = NULL,
        start_us = NULL,
        ended_at = $end_at,
        cause = $end_cause,
        wake_at = NULL,
        handed_until = NULL,
        gated = false,
        has_result = j.has_result OR told.result IS NOT NULL
    -- What all share stands beside each of them, or they would be looked for among all of the tenant.
    FROM (
        SELECT one.*, $end_tenant::text AS tenant, $end_source::text AS source
        FROM unnest(
            string_to_array($end_ids::text, E'\x1f'),
            string_to_array($end_fences::text, E'\x1f')::bigint[],
            string_to_array($end_leases::text, E'\x1f'),
            string_to_array($end_commands::text, E'\x1f'),
            string_to_array($end_rests::text, E'\x1f', ''),
            string_to_array($end_results::text, E'\x1f', '')
        ) WITH ORDINALITY AS one (id, fence, lease, command_id, rest, result, number)
        OFFSET 0
    ) AS told
    WHERE j.tenant = told.tenant AND j.id = told.id AND j.version = told.fence
        AND j.lease = told.lease AND j.state = told.source
    RETURNING told.number::int AS number, j.tenant, j.id, j.version, j.lane, told.lease,
        told.command_id, told.rest, told.result
), leases_ended AS (
    -- Only what was held over the wire has a row.
    DELETE FROM detent.leases AS l WHERE l.lease = ANY (ARRAY(SELECT held.lease FROM held))
        AND EXISTS (SELECT FROM detent.leases)
)

-- part: end_results
resulted AS (
    INSERT INTO detent.results (tenant, id, result, until)
    SELECT tenant, id, result, $end_until::bigint FROM held WHERE result IS NOT NULL
    ON CONFLICT (tenant, id) DO UPDATE SET result = excluded.result, until = excluded.until
)

-- part: end_events
SELECT 1 AS part, number AS turn, tenant, id AS record, version, $end_at::bigint AS at, $end_name AS name,
    $end_source AS source, $end_state AS target, $end_actor AS actor, $end_actor_id AS actor_id,
    command_id, 'job' AS kind, coalesce(rest, $end_rest) AS rest
FROM held

-- part: end_counts
SELECT one.lane, told.state, told.sign * one.count AS count
FROM (SELECT lane, count(*) AS count FROM held GROUP BY lane) AS one
CROSS JOIN (VALUES ($end_source, -1), ($end_state, 1)) AS told (state, sign)

-- part: ended
happened AS ({{end_events}}),
changed AS ({{end_counts}}),
{{recorded}}
SELECT number FROM held

-- part: ended_and_claimed
{{claiming AND (SELECT count(*) FROM held) = $ends::bigint}},
happened AS ({{end_events}} UNION ALL {{claim_events}}),
changed AS ({{end_counts}} UNION ALL {{claim_counts}}),
{{recorded}}
SELECT {{held_unless_all $ends::bigint}}, {{answers}}, {{claimed}}
FROM (SELECT) AS one LEFT JOIN taken ON true

-- name: end
WITH {{ends}}, {{ended}}

-- name: end_richly
WITH {{ends}}, {{end_results}}, {{ended}}

-- name: end_and_claim
WITH {{ends}}, {{ended_and_claimed}}

-- name: end_richly_and_claim
WITH {{ends}}, {{end_results}}, {{ended_and_claimed}}
