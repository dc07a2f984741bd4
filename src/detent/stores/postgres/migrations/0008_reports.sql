-- What a report says, as a row of a type of its own: how a job leaves its holder's hands, and the one
-- event that tells it. All that such an end cannot change is left out. The columns stand here in the
-- order in which they are sent. Code that knows nothing of it goes on beside.
-- min_code: 2

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
