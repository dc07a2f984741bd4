-- Finished jobs out of nothing, numbered from 1 to %(last)s, each with a body and three events.
INSERT INTO detent.jobs (
    tenant, id, version, state, profile, queue, priority, delivery, allowed, losses_allowed,
    created_at, state_at, last_at, place, held, attempt, failures, losses, handed_back, wire,
    enqueued_at, ready_at, claimed_at, started_at, ended_at, cause, lane, type, payload, meta
)
SELECT '', 'past-' || lpad(n::text, 27, '0'), 3, 'completed', 'python', 'default', 0, 'pull', 3, 3,
    n, n, n, n, false, 1, 0, 0, 0, false, n, n, n, n, n, 'succeeded', %(lane)s,
    'mail.send', '[]', '{}'
FROM generate_series(1, %(last)s::bigint) AS n;

INSERT INTO detent.events (
    tenant, record, version, at, name, source, target, actor, actor_id, command_id, kind
)
SELECT '', 'past-' || lpad(n::text, 27, '0'), e.version, n, e.name, e.source, e.target, e.actor, '',
    'c', 'job'
FROM generate_series(1, %(last)s::bigint) AS n
CROSS JOIN (VALUES
    (1, 'enqueue', NULL, 'available', 'user'),
    (2, 'claim', 'available', 'active', 'worker'),
    (3, 'complete', 'active', 'completed', 'worker')
) AS e (version, name, source, target, actor);

INSERT INTO detent.tallies (lane, state, count) VALUES (%(lane)s, 'completed', %(last)s);

ANALYZE
