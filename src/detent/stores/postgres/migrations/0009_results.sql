-- How long a result is kept. Code that knows nothing of it goes on beside, and its results stay.
-- min_code: 2

ALTER TABLE detent.results ADD COLUMN until bigint;

CREATE INDEX results_until ON detent.results (until) WHERE until IS NOT NULL;

-- The same as before, with how long the result is kept.
CREATE OR REPLACE FUNCTION detent.write_end(stored detent.jobs, move jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE detent.jobs AS j SET
        {{moving_sets}},
        wake_at = (move ->> 'wake_at')::bigint,
        handed_until = NULL,
        gated = false,
        has_result = j.has_result OR move ->> 'result' IS NOT NULL
    FROM jsonb_populate_record(
        NULL::detent.jobs,
        '{"held": false, "wire": false, "attempt": 0, "failures": 0, "losses": 0, "handed_back": 0}'
        || (move -> 'job')
    ) AS told
    WHERE j.tenant = stored.tenant AND j.id = stored.id;

    INSERT INTO detent.results (tenant, id, result, until)
    SELECT stored.tenant, stored.id, move ->> 'result', (move ->> 'result_until')::bigint
    WHERE move ->> 'result' IS NOT NULL
    ON CONFLICT (tenant, id) DO UPDATE SET result = excluded.result, until = excluded.until;

    DELETE FROM detent.leases AS l WHERE stored.wire AND l.lease = stored.lease;

    INSERT INTO detent.tallies (lane, state, count)
    SELECT stored.lane, state, count
    FROM (VALUES (stored.state, -1), (move #>> '{job,state}', 1)) AS changed (state, count)
    WHERE stored.lane IS NOT NULL;

    INSERT INTO detent.events (
        tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
    )
    SELECT stored.tenant, stored.id, (e ->> 'version')::bigint, (e ->> 'at')::bigint,
        e ->> 'name', e ->> 'source', e ->> 'target', e ->> 'actor', e ->> 'actor_id',
        e ->> 'command_id', coalesce(e ->> 'kind', 'job'),
        nullif(e - ARRAY[
            'tenant', 'record', 'version', 'at', 'name', 'source', 'target', 'actor', 'actor_id',
            'command_id', 'kind'
        ], '{}')::text
    FROM jsonb_array_elements(move -> 'events') WITH ORDINALITY AS told (e, turn) ORDER BY turn;
END
$$;
