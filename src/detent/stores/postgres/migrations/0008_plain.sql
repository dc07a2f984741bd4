-- What happens to nearly every job, as rows of types of their own: how it comes, and how it leaves its
-- holder's hands, each with the one event that tells it. All that follows from the rest is left out. The
-- columns stand here in the order in which they are sent. Code that knows nothing of it goes on beside.
-- min_code: 2

CREATE TYPE detent.told_fresh AS (
    tenant text COLLATE "C",
    id text COLLATE "C",
    state text COLLATE "C",
    profile text COLLATE "C",
    queue text COLLATE "C",
    priority bigint,
    delivery text COLLATE "C",
    allowed bigint,
    losses_allowed bigint,
    at bigint,
    place bigint,
    held boolean,
    run_at bigint,
    expires_at bigint,
    available_us bigint,
    pending_us bigint,
    active_us bigint,
    rerun_of text COLLATE "C",
    wake_at bigint,
    lane int,
    type text COLLATE "C",
    payload text,
    meta text,
    tags text,
    retry text,
    schema text,
    key text COLLATE "C",
    actor text COLLATE "C",
    actor_id text COLLATE "C",
    command_id text COLLATE "C",
    rest text
);

CREATE TYPE detent.told_report AS (
    number int,
    tenant text COLLATE "C",
    id text COLLATE "C",
    fence bigint,
    lease text COLLATE "C",
    at bigint,
    name text COLLATE "C",
    source text COLLATE "C",
    state text COLLATE "C",
    actor text COLLATE "C",
    actor_id text COLLATE "C",
    command_id text COLLATE "C",
    rest text,
    ended_at bigint,
    cause text COLLATE "C",
    failures bigint,
    losses bigint,
    handed_back bigint,
    run_at bigint,
    returned_by text COLLATE "C",
    delay_us bigint,
    wake_at bigint,
    with_result boolean,
    with_failure boolean
);

-- The same question as before, answered without the list where it is asked most. A list is prepared anew
-- in every transaction, which takes longer than writing one event.
CREATE OR REPLACE FUNCTION detent.is_declared(kind text, name text, source text, target text)
RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF {{hot_moves}} THEN
        RETURN true;
    END IF;
    RETURN kind || ' ' || name || ' ' || coalesce(source, '-') || ' ' || coalesce(target, '-')
        = ANY (ARRAY[
            {{moves}}
        ]);
END
$$;
