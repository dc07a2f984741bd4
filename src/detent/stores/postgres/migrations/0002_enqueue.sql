-- Enqueueing inside somebody's own transaction, from any driver and any language:
--     SELECT detent.enqueue(units, now)
-- Such a transaction may stay open for hours, so it takes no lock that others wait for, unless they
-- ask for the same id, unique fingerprint or idempotency key.
-- min_code: 2

-- To make a lane is to hold up everybody who wants to make the same one. So a job whose lane is not
-- there yet is stored without; the store makes the lane and places the job once it is committed.
ALTER TABLE detent.jobs ALTER COLUMN lane DROP NOT NULL;

CREATE TABLE detent.unplaced (
    tenant text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    type text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    PRIMARY KEY (tenant, id)
);

-- The digest that lanes and locks are found by: that of the names as a JSON array, to the byte.
CREATE FUNCTION detent.digest_of(names text[]) RETURNS bytea LANGUAGE sql IMMUTABLE AS $$
    SELECT sha256(convert_to('[' || string_agg(to_json(name)::text, ',' ORDER BY turn) || ']', 'UTF8'))
    FROM unnest(names) WITH ORDINALITY AS told (name, turn)
$$;

-- Ends a unit with its answer. Raising it undoes whatever the unit did, its locks too.
CREATE FUNCTION detent.answer_with(answer jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE SQLSTATE 'DT001' USING MESSAGE = answer::text;
END
$$;

CREATE FUNCTION detent.reject(why text) RETURNS void LANGUAGE sql AS $$
    SELECT detent.answer_with(jsonb_build_object('outcome', 'rejected', 'why', why))
$$;

-- Who wants the same fingerprint or key waits here, and whoever steps in the store does too.
CREATE FUNCTION detent.lock_keys_of(news jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT jsonb_path_exists(news, '$[*] ? (@.unique != null || @.idempotency != null)') THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        -- After waiting for a rival such a transaction would still not see what the rival did.
        PERFORM detent.answer_with(jsonb_build_object(
            'outcome', 'isolation', 'why', current_setting('transaction_isolation')
        ));
    END IF;
    PERFORM pg_advisory_xact_lock(number) FROM (
        SELECT DISTINCT ('x' || encode(substr(detent.digest_of(names), 1, 8), 'hex'))::bit(64)::bigint
            AS number
        FROM jsonb_array_elements(news) AS told (new) CROSS JOIN LATERAL (VALUES
            (ARRAY['unique', new #>> '{job,tenant}', new #>> '{unique,fingerprint}']),
            (ARRAY['idempotency', new #>> '{job,tenant}', new #>> '{idempotency,key}'])
        ) AS wanted (names)
        WHERE names[3] IS NOT NULL ORDER BY number
    ) AS ordered;
END
$$;

-- Answers if the id, the key or the fingerprint of a new job is in use. Those before its own turn in
-- the unit are judged as if they were stored.
CREATE FUNCTION detent.need_free(unit jsonb, new jsonb, own_turn bigint, now bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    asked CONSTANT text := new #>> '{idempotency,key}';
    of_tenant CONSTANT text := new #>> '{job,tenant}';
    of_id CONSTANT text := new #>> '{job,id}';
    digest text;
    taken jsonb;
BEGIN
    SELECT to_jsonb(j) INTO taken FROM detent.jobs AS j WHERE j.tenant = of_tenant AND j.id = of_id;
    IF taken IS NOT NULL THEN
        IF EXISTS (
            SELECT FROM detent.events AS e WHERE e.tenant = of_tenant AND e.record = of_id
                AND e.command_id = unit ->> 'command_id'
        ) THEN
            PERFORM detent.answer_with('{"outcome": "own"}');
        END IF;
        PERFORM detent.answer_with(
            jsonb_build_object('outcome', 'taken', 'what', 'id', 'by', taken)
        );
    END IF;
    IF asked IS NOT NULL THEN
        SELECT to_jsonb(j), i.digest INTO taken, digest FROM detent.idempotency AS i
        JOIN detent.jobs AS j ON j.tenant = i.tenant AND j.id = i.id
        WHERE i.tenant = of_tenant AND i.key = asked AND i.expires_at > now;
        IF taken IS NULL THEN
            SELECT told.one -> 'job', told.one #>> '{idempotency,digest}' INTO taken, digest
            FROM (
                SELECT one FROM jsonb_array_elements(unit -> 'new') WITH ORDINALITY AS told (one, turn)
                WHERE turn < own_turn AND one #>> '{job,tenant}' = of_tenant AND one #>> '{idempotency,key}' = asked
                ORDER BY turn DESC LIMIT 1
            ) AS told WHERE (told.one #>> '{idempotency,expires_at}')::bigint > now;
        END IF;
        IF taken IS NOT NULL THEN
            PERFORM detent.answer_with(jsonb_build_object(
                'outcome', 'taken', 'what', 'idempotency', 'by', taken,
                'differs', digest IS DISTINCT FROM new #>> '{idempotency,digest}'
            ));
        END IF;
    END IF;
    IF new #>> '{unique,fingerprint}' IS NOT NULL THEN
        PERFORM detent.need_unique(unit, new, own_turn);
    END IF;
END
$$;

-- The oldest job that counts is in the way; of those of one moment, one that is stored.
CREATE FUNCTION detent.need_unique(unit jsonb, new jsonb, own_turn bigint)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of_tenant CONSTANT text := new #>> '{job,tenant}';
    wanted CONSTANT text := new #>> '{unique,fingerprint}';
    since CONSTANT bigint := coalesce((new #>> '{unique,since}')::bigint, -9223372036854775808);
    taken jsonb;
BEGIN
    SELECT found.job INTO taken FROM (
        SELECT one.* FROM jsonb_array_elements_text(new #> '{unique,states}') AS told (state)
        CROSS JOIN LATERAL (
            SELECT to_jsonb(j) AS job, j.created_at, 0 AS part, e.seq FROM detent.jobs AS j
            JOIN detent.events AS e ON e.tenant = j.tenant AND e.record = j.id AND e.version = 1
            WHERE j.tenant = of_tenant AND j.fingerprint = wanted
                AND j.state = told.state AND j.created_at >= since
            ORDER BY j.created_at, e.seq LIMIT 1
        ) AS one
        UNION ALL
        SELECT one -> 'job', (one #>> '{job,created_at}')::bigint, 1, turn
        FROM jsonb_array_elements(unit -> 'new') WITH ORDINALITY AS told (one, turn)
        WHERE turn < own_turn AND one #>> '{job,tenant}' = of_tenant AND one #>> '{unique,fingerprint}' = wanted
            AND new #> '{unique,states}' ? (one #>> '{job,state}')
            AND (one #>> '{job,created_at}')::bigint >= since
    ) AS found ORDER BY found.created_at, found.part, found.seq LIMIT 1;
    IF taken IS NOT NULL THEN
        PERFORM detent.answer_with(
            jsonb_build_object('outcome', 'taken', 'what', 'unique', 'by', taken)
        );
    END IF;
END
$$;

-- Answers if a new job is nothing that can be enqueued: what the tables cannot see by themselves.
CREATE FUNCTION detent.need_sound(new jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    job CONSTANT jsonb := new -> 'job';
    number bigint := 0;
    event jsonb;
BEGIN
    IF coalesce(job ->> 'workflow', job ->> 'step', job ->> 'lease') IS NOT NULL THEN
        PERFORM detent.reject('a job of a workflow, or in somebody''s hands, is not enqueued here');
    ELSIF new #>> '{body,key}' = '' THEN
        PERFORM detent.reject(format('%s has a key without a character', job ->> 'id'));
    END IF;
    FOR event IN SELECT value FROM jsonb_array_elements(new -> 'events') LOOP
        number := number + 1;
        IF (event ->> 'tenant', event ->> 'record', (event ->> 'version')::bigint)
            IS DISTINCT FROM (job ->> 'tenant', job ->> 'id', number)
            OR coalesce(event ->> 'kind', 'job') <> 'job'
        THEN
            PERFORM detent.reject(format('version %s of %s is missing', number, job ->> 'id'));
        END IF;
    END LOOP;
    IF number = 0 OR (job ->> 'version')::bigint IS DISTINCT FROM number THEN
        PERFORM detent.reject(format('%s has another version than its history', job ->> 'id'));
    END IF;
END
$$;

-- Writes the new jobs of a unit that nothing speaks against.
CREATE FUNCTION detent.write_new(news jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    WITH told AS MATERIALIZED (
        SELECT new -> 'body' AS body, new ->> 'wake_at' AS woken, new #>> '{unique,fingerprint}' AS mark,
            l.lane AS of_lane, j.*
        FROM jsonb_array_elements(news) AS told (new)
        CROSS JOIN LATERAL jsonb_populate_record(
            NULL::detent.jobs,
            '{"held": false, "wire": false, "attempt": 0, "failures": 0, "losses": 0, "handed_back": 0}'
            || (new -> 'job')
        ) AS j
        LEFT JOIN detent.lanes AS l ON l.digest = detent.digest_of(ARRAY[
            j.tenant, j.queue, new #>> '{body,type}', j.profile, j.delivery,
            coalesce(new #>> '{body,key}', '')
        ])
    ), made AS (
        INSERT INTO detent.jobs ({{job}}, wake_at, lane, fingerprint)
        SELECT {{job}}, woken::bigint, of_lane, mark FROM told ORDER BY tenant, id
    ), kept AS (
        INSERT INTO detent.bodies (tenant, id, type, payload, meta, tags, retry, schema, key)
        SELECT tenant, id, body ->> 'type', coalesce(body ->> 'payload', '[]'),
            coalesce(body ->> 'meta', '{}'), nullif(body ->> 'tags', '[]'), body ->> 'retry',
            body ->> 'schema', body ->> 'key'
        FROM told ORDER BY tenant, id
    ), tagged AS (
        INSERT INTO detent.tags (tenant, tag, id)
        SELECT DISTINCT tenant, tag, id
        FROM told CROSS JOIN LATERAL jsonb_array_elements_text(body -> 'tags') AS one (tag)
    ), counted AS (
        INSERT INTO detent.tallies (lane, state, count)
        SELECT of_lane, state, count(*) FROM told WHERE of_lane IS NOT NULL GROUP BY of_lane, state
    )
    INSERT INTO detent.unplaced (tenant, id, type, key)
    SELECT tenant, id, body ->> 'type', coalesce(body ->> 'key', '')
    FROM told WHERE of_lane IS NULL ORDER BY tenant, id;

    INSERT INTO detent.events (
        tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind, rest
    )
    SELECT e ->> 'tenant', e ->> 'record', (e ->> 'version')::bigint, (e ->> 'at')::bigint,
        e ->> 'name', e ->> 'source', e ->> 'target', e ->> 'actor', e ->> 'actor_id',
        e ->> 'command_id', coalesce(e ->> 'kind', 'job'),
        nullif(e - ARRAY[
            'tenant', 'record', 'version', 'at', 'name', 'source', 'target', 'actor', 'actor_id',
            'command_id', 'kind'
        ], '{}')::text
    FROM jsonb_array_elements(news) WITH ORDINALITY AS told (new, part)
    CROSS JOIN LATERAL jsonb_array_elements(new -> 'events') WITH ORDINALITY AS one (e, turn)
    ORDER BY part, turn;

    INSERT INTO detent.idempotency (tenant, key, digest, expires_at, id)
    SELECT DISTINCT ON (tenant, key) tenant, key, digest, expires_at, id FROM (
        SELECT new #>> '{job,tenant}' AS tenant, new #>> '{idempotency,key}' AS key,
            new #>> '{idempotency,digest}' AS digest,
            (new #>> '{idempotency,expires_at}')::bigint AS expires_at, new #>> '{job,id}' AS id, part
        FROM jsonb_array_elements(news) WITH ORDINALITY AS told (new, part)
    ) AS asked WHERE key IS NOT NULL ORDER BY tenant, key, part DESC
    ON CONFLICT (tenant, key) DO UPDATE SET
        digest = excluded.digest, expires_at = excluded.expires_at, id = excluded.id;
END
$$;

CREATE FUNCTION detent.enqueue_unit(unit jsonb, now bigint) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    news CONSTANT jsonb := coalesce(unit -> 'new', '[]');
    new jsonb;
    turn bigint := 0;
BEGIN
    PERFORM detent.lock_keys_of(news);
    FOR new IN SELECT value FROM jsonb_array_elements(news) LOOP
        turn := turn + 1;
        PERFORM detent.need_free(unit, new, turn, now);
    END LOOP;
    IF turn = 0 OR unit - ARRAY['command_id', 'new'] <> '{}' THEN
        PERFORM detent.reject('a unit of new jobs, and of nothing else, is enqueued here');
    ELSIF turn > 1 AND turn <> (
        SELECT count(DISTINCT (value #> '{job,tenant}', value #> '{job,id}'))
        FROM jsonb_array_elements(news)
    ) THEN
        PERFORM detent.reject('a record stands twice in one unit');
    END IF;
    PERFORM detent.need_sound(value) FROM jsonb_array_elements(news);
    PERFORM detent.write_new(news);
    IF jsonb_path_exists(news, '$[*].job ? (@.state == "available")') THEN
        -- Delivered with the commit, and once however often it was said.
        PERFORM pg_notify('detent', 'enqueue');
    END IF;
    RETURN '{"outcome": "committed"}';
END
$$;

-- The answers to units that are only new jobs, as JSON: an array of one object per unit, in order.
-- Each unit is all or nothing, and one that is refused leaves nothing and harms no other, nor the
-- transaction around it. `now` is in microseconds.
CREATE FUNCTION detent.enqueue(units text, now bigint) RETURNS text LANGUAGE plpgsql
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    answers jsonb := '[]';
    answer jsonb;
    unit json;
    -- Where somebody who is faster with the same id is met first, nobody knows.
    races CONSTANT text[] := ARRAY['jobs_pkey', 'bodies_pkey', 'unplaced_pkey', 'events_pkey'];
    broken text;
BEGIN
    FOR unit IN SELECT value FROM json_array_elements(units::json) LOOP
        -- The second time it sees who was faster with the same id.
        FOR tries IN 1..2 LOOP
            BEGIN
                answer := detent.enqueue_unit(unit::jsonb, now);
            EXCEPTION
                WHEN SQLSTATE 'DT001' THEN
                    answer := SQLERRM::jsonb;
                WHEN lock_not_available OR deadlock_detected THEN
                    answer := jsonb_build_object('outcome', 'busy', 'why', SQLERRM);
                WHEN integrity_constraint_violation OR data_exception OR program_limit_exceeded
                    OR raise_exception
                THEN
                    GET STACKED DIAGNOSTICS broken = CONSTRAINT_NAME;
                    answer := jsonb_build_object(
                        'outcome', CASE WHEN broken = ANY (races) THEN 'busy' ELSE 'rejected' END,
                        'why', SQLERRM
                    );
                    CONTINUE WHEN broken = ANY (races);
            END;
            EXIT;
        END LOOP;
        answers := answers || answer;
    END LOOP;
    RETURN answers::text;
END
$$;
