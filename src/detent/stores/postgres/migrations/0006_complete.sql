-- The end of a job inside its handler's own transaction, from any driver and any language:
--     SELECT detent.complete(units, now)
-- Until that transaction ends it holds the row of this one job, and nothing that others wait for.
-- min_code: 2

-- Answers if the end is nothing that can be committed here: what the tables cannot see themselves.
CREATE FUNCTION detent.need_end(move jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    job CONSTANT jsonb := move -> 'job';
    number bigint := (move ->> 'version')::bigint;
    event jsonb;
BEGIN
    IF job ->> 'ended_at' IS NULL OR move ->> 'lease' IS NULL THEN
        PERFORM detent.reject('the end of a job in somebody''s hands, and nothing else, is taken here');
    ELSIF coalesce(job ->> 'workflow', job ->> 'step') IS NOT NULL THEN
        PERFORM detent.reject('a job of a workflow does not end here');
    END IF;
    FOR event IN SELECT value FROM jsonb_array_elements(move -> 'events') LOOP
        number := number + 1;
        IF (event ->> 'tenant', event ->> 'record', (event ->> 'version')::bigint)
            IS DISTINCT FROM (job ->> 'tenant', job ->> 'id', number)
            OR coalesce(event ->> 'kind', 'job') <> 'job'
        THEN
            PERFORM detent.reject(format('version %s of %s is missing', number, job ->> 'id'));
        END IF;
    END LOOP;
    IF (job ->> 'version')::bigint IS DISTINCT FROM number THEN
        PERFORM detent.reject(format('%s has another version than its history', job ->> 'id'));
    END IF;
END
$$;

-- The job as it stands, locked; answers if its version or its lease is not what the move relies on.
CREATE FUNCTION detent.need_held(unit jsonb, move jsonb) RETURNS detent.jobs LANGUAGE plpgsql AS $$
DECLARE
    stored detent.jobs;
BEGIN
    SELECT j.* INTO stored FROM detent.jobs AS j
    WHERE j.tenant = move #>> '{job,tenant}' AND j.id = move #>> '{job,id}' FOR UPDATE;
    IF stored.version = (move ->> 'version')::bigint AND stored.lease = move ->> 'lease' THEN
        RETURN stored;
    ELSIF EXISTS (
        SELECT FROM detent.events AS e
        WHERE e.tenant = move #>> '{job,tenant}' AND e.record = move #>> '{job,id}'
            AND e.command_id = unit ->> 'command_id'
    ) THEN
        PERFORM detent.answer_with('{"outcome": "own"}');
    END IF;
    PERFORM detent.answer_with(jsonb_build_object(
        'outcome', 'stale', 'by', CASE WHEN stored.id IS NOT NULL THEN to_jsonb(stored) END
    ));
END
$$;

CREATE FUNCTION detent.write_end(stored detent.jobs, move jsonb) RETURNS void LANGUAGE plpgsql AS $$
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

    INSERT INTO detent.results (tenant, id, result)
    SELECT stored.tenant, stored.id, move ->> 'result' WHERE move ->> 'result' IS NOT NULL
    ON CONFLICT (tenant, id) DO UPDATE SET result = excluded.result;

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

CREATE FUNCTION detent.complete_unit(unit jsonb, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    move CONSTANT jsonb := unit #> '{moves,0}';
    news CONSTANT jsonb := coalesce(unit -> 'new', '[]');
    stored detent.jobs;
BEGIN
    IF jsonb_array_length(coalesce(unit -> 'moves', '[]')) <> 1
        OR unit - ARRAY['command_id', 'moves', 'new'] <> '{}'
        OR jsonb_path_exists(news, '$[*] ? (@.unique != null || @.idempotency != null)')
    THEN
        PERFORM detent.reject('one end with new jobs that have no keys, and nothing else, is taken here');
    END IF;
    stored := detent.need_held(unit, move);
    PERFORM detent.need_end(move);
    PERFORM detent.need_free(unit, value, turn, now)
    FROM jsonb_array_elements(news) WITH ORDINALITY AS told (value, turn);
    PERFORM detent.need_sound(value) FROM jsonb_array_elements(news);
    PERFORM detent.write_end(stored, move);
    IF news <> '[]' THEN
        PERFORM detent.write_new(news);
    END IF;
    -- Room under a limit may be there for others, or a new job: said with the commit.
    PERFORM pg_notify('detent', 'complete');
    RETURN '{"outcome": "committed"}';
END
$$;

-- The answers to units that end one job each, as JSON: an array of one object per unit, in order.
-- One that is refused leaves nothing and does not harm the transaction around it.
CREATE FUNCTION detent.complete(units text, now bigint) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    answers jsonb := '[]';
    answer jsonb;
    unit json;
BEGIN
    FOR unit IN SELECT value FROM json_array_elements(units::json) LOOP
        BEGIN
            answer := detent.complete_unit(unit::jsonb, now);
        EXCEPTION
            WHEN SQLSTATE 'DT001' THEN
                answer := SQLERRM::jsonb;
            WHEN lock_not_available OR deadlock_detected THEN
                answer := jsonb_build_object('outcome', 'busy', 'why', SQLERRM);
            WHEN integrity_constraint_violation OR data_exception OR program_limit_exceeded
                OR raise_exception
            THEN
                answer := jsonb_build_object('outcome', 'rejected', 'why', SQLERRM);
        END;
        answers := answers || answer;
    END LOOP;
    RETURN answers::text;
END
$$;
