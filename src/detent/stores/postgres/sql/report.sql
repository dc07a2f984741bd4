-- Reports: each job leaves the hands of the holder whose lease is named, by one event. What such an end
-- does not change is not sent and not written. Rows are told in the order of their keys and locked in
-- it. What is not in `held` was refused by a fence.

-- part: reports
held AS (
    UPDATE detent.jobs AS j SET
        version = told.fence + 1,
        state = told.state,
        state_at = told.at,
        last_at = told.at,
        previous = told.source,
        failures = told.failures,
        losses = told.losses,
        handed_back = told.handed_back,
        run_at = told.run_at,
        lease = NULL,
        wire = false,
        lease_us = NULL,
        received_at = NULL,
        start_us = NULL,
        ended_at = told.ended_at,
        cause = told.cause,
        returned_by = told.returned_by,
        delay_us = told.delay_us,
        wake_at = told.wake_at,
        handed_until = NULL,
        gated = false,
        has_result = j.has_result OR told.with_result,
        has_failures = j.has_failures OR told.with_failure
    FROM unnest($reports::detent.told_report[]) AS told
    WHERE j.tenant = told.tenant AND j.id = told.id AND j.version = told.fence
        AND j.lease = told.lease AND j.state = told.source
    RETURNING told.number, j.tenant, j.id, j.version, told.at, told.name, told.source, told.state,
        told.actor, told.actor_id, told.command_id, told.rest, told.lease, j.lane
), leases_ended AS (
    -- Only what was held over the wire has a row.
    DELETE FROM detent.leases AS l WHERE l.lease = ANY (ARRAY(SELECT held.lease FROM held))
        AND EXISTS (SELECT FROM detent.leases)
)

-- part: report_events
SELECT 1 AS part, number AS turn, tenant, id AS record, version, at, name, source, state AS target,
    actor, actor_id, command_id, 'job' AS kind, rest
FROM held

-- part: report_counts
SELECT lane, source AS state, -1 AS count FROM held
UNION ALL
SELECT lane, state, 1 FROM held

-- part: reported
happened AS ({{report_events}}),
changed AS ({{report_counts}}),
{{recorded}}
SELECT number FROM held

-- part: reported_and_claimed
{{claiming AND (SELECT count(*) FROM held) = cardinality($reports::detent.told_report[])}},
happened AS ({{report_events}} UNION ALL {{claim_events}}),
changed AS ({{report_counts}} UNION ALL {{claim_counts}}),
{{recorded}}
SELECT {{held_unless_all cardinality($reports::detent.told_report[])}}, {{answers}}, {{claimed}}
FROM (SELECT) AS one LEFT JOIN taken ON true

-- name: report
WITH {{reports}}, {{reported}}

-- name: report_richly
WITH {{reports}}, {{asides}}, {{reported}}

-- name: report_and_claim
WITH {{reports}}, {{reported_and_claimed}}

-- name: report_richly_and_claim
WITH {{reports}}, {{asides}}, {{reported_and_claimed}}
