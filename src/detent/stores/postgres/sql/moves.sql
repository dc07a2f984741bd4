-- Moves: each row is fenced by its version and lease, locked in the order of the keys, and written
-- together with its events. What is not in `held` was refused by a fence. The parts are put together
-- by the statements that follow them.

-- part: moves
told AS (
    SELECT * FROM unnest($moves::detent.told_move[])
), held AS MATERIALIZED (
    SELECT told.*, j.state AS old_state, j.lease AS old_lease, j.wire AS old_wire,
        j.lane AS old_lane
    FROM told JOIN detent.jobs AS j ON j.tenant = told.tenant AND j.id = told.id
    WHERE j.version = told.fence
        AND (told.fence_lease IS NULL OR j.lease = told.fence_lease)
        AND (told.new_lane IS NOT NULL OR j.queue = told.queue OR j.lane IS NULL)
        AND (j.ended_at IS NULL OR NOT told.leaves)
        {{apart}}
    ORDER BY told.tenant, told.id
    FOR UPDATE OF j
), moved AS (
    UPDATE detent.jobs AS j SET
        {{moving_sets}},
        wake_at = CASE WHEN told.old_wire AND told.lease = told.old_lease
            THEN least(
                told.wake_at, (SELECT l.until FROM detent.leases AS l WHERE l.lease = told.lease)
            )
            ELSE told.wake_at END,
        handed_until = NULL,
        gated = told.gated,
        lane = coalesce(told.new_lane, j.lane),
        has_result = j.has_result OR told.with_result,
        has_failures = j.has_failures OR told.with_failure,
        has_checkpoint = j.has_checkpoint OR told.with_checkpoint
    FROM held AS told WHERE j.tenant = told.tenant AND j.id = told.id
), {{asides}}, leases_ended AS (
    DELETE FROM detent.leases AS l USING held
    WHERE held.old_wire AND l.lease = held.old_lease AND held.lease IS DISTINCT FROM held.old_lease
), leases_begun AS (
    INSERT INTO detent.leases (lease, until, tenant, id)
    SELECT held.lease, $now::bigint + coalesce(held.lease_us, 0), held.tenant, held.id FROM held
    WHERE held.wire AND held.lease IS NOT NULL AND held.lease IS DISTINCT FROM held.old_lease
    ON CONFLICT (lease) DO UPDATE SET
        until = excluded.until, tenant = excluded.tenant, id = excluded.id
)

-- part: asides
resulted AS (
    INSERT INTO detent.results (tenant, id, result, until)
    SELECT held.tenant, held.id, told.result, told.until
    FROM unnest($result_numbers::int[], $results::text[], $result_untils::bigint[])
        AS told (number, result, until)
    JOIN held ON held.number = told.number
    ON CONFLICT (tenant, id) DO UPDATE SET result = excluded.result, until = excluded.until
), failed AS (
    INSERT INTO detent.failures
        (tenant, id, attempt, at, code, message, type, details, backtrace)
    SELECT held.tenant, held.id, f.attempt, f.at, f.code, f.message, f.type, f.details, f.backtrace
    FROM unnest(
        $failure_numbers::int[], $failure_attempts::bigint[], $failure_ats::bigint[],
        $failure_codes::text[], $failure_messages::text[], $failure_types::text[],
        $failure_details::text[], $failure_backtraces::text[]
    ) AS f (number, attempt, at, code, message, type, details, backtrace)
    JOIN held ON held.number = f.number
), lines AS (
    SELECT held.tenant, held.id, l.at, l.level, l.text, l.turn,
        row_number() OVER (PARTITION BY l.number ORDER BY l.turn) AS place
    FROM unnest($line_numbers::int[], $line_ats::bigint[], $line_levels::text[], $line_texts::text[])
        WITH ORDINALITY AS l (number, at, level, text, turn)
    JOIN held ON held.number = l.number
), said AS (
    INSERT INTO detent.cursors AS c (tenant, id, last)
    SELECT tenant, id, count(*) FROM lines GROUP BY tenant, id ORDER BY tenant, id
    ON CONFLICT (tenant, id) DO UPDATE SET last = c.last + excluded.last
    RETURNING tenant, id, last
), logged AS (
    INSERT INTO detent.logs (tenant, id, cursor, at, level, text)
    SELECT l.tenant, l.id,
        said.last - count(*) OVER (PARTITION BY l.tenant, l.id) + l.place, l.at, l.level, l.text
    FROM lines AS l JOIN said ON said.tenant = l.tenant AND said.id = l.id ORDER BY l.turn
)

-- part: move_events
SELECT 1 AS part, e.ordinality AS turn, held.tenant, held.id AS record, e.version, e.at, e.name, e.source,
    e.target, e.actor, e.actor_id, e.command_id, e.kind, e.rest
FROM unnest($events::detent.told_event[]) WITH ORDINALITY AS e
JOIN held ON held.number = e.number

-- part: move_counts
SELECT old_lane AS lane, old_state AS state, -1 AS count FROM held
UNION ALL
SELECT coalesce(new_lane, old_lane), state, 1 FROM held

-- part: recorded
recorded AS (
    INSERT INTO detent.events (
        tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
    )
    SELECT tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
    FROM happened {{apart}}
), counted AS (
    INSERT INTO detent.tallies (lane, state, count)
    -- Without a lane a job is in no tally, whatever state it moves to.
    SELECT lane, state, sum(count) FROM changed WHERE lane IS NOT NULL
    GROUP BY lane, state HAVING sum(count) <> 0
)

-- part: held_unless_all
CASE WHEN (SELECT count(*) FROM held) < {{apart}} THEN ARRAY(SELECT number FROM held) END
    AS held

-- name: move
WITH {{moves}},
happened AS ({{move_events}}),
changed AS ({{move_counts}}),
{{recorded ORDER BY part, turn}}
SELECT number FROM held

-- name: step
WITH {{moves AND j.state <> 'available'}},
{{claiming AND (SELECT count(*) FROM held) = cardinality($moves::detent.told_move[])}},
happened AS ({{move_events}} UNION ALL {{claim_events}}),
changed AS ({{move_counts}} UNION ALL {{claim_counts}}),
{{recorded ORDER BY part, turn}}
SELECT {{held_unless_all cardinality($moves::detent.told_move[])}}, {{answers}}, {{claimed}}
FROM (SELECT) AS one LEFT JOIN taken ON true
