-- Jobs that were enqueued inside somebody's own transaction while their lane was not there yet. They
-- are in no tally and in no lane until they are placed here, soon after they were committed.

-- name: unplaced
SELECT DISTINCT j.tenant, j.queue, u.type, j.profile, j.delivery, u.key
FROM (SELECT * FROM detent.unplaced ORDER BY tenant, id LIMIT $most::bigint) AS u
JOIN detent.jobs AS j ON j.tenant = u.tenant AND j.id = u.id

-- name: place
WITH told AS MATERIALIZED (
    SELECT * FROM unnest(
        $tenants::text[], $queues::text[], $types::text[], $profiles::text[], $deliveries::text[],
        $keys::text[], $lanes::int[]
    ) AS told (tenant, queue, type, profile, delivery, key, lane)
), chosen AS MATERIALIZED (
    SELECT j.tenant, j.id, j.state, told.lane FROM detent.unplaced AS u
    JOIN detent.jobs AS j ON j.tenant = u.tenant AND j.id = u.id
    JOIN told ON told.tenant = j.tenant AND told.queue = j.queue AND told.type = u.type
        AND told.profile = j.profile AND told.delivery = j.delivery AND told.key = u.key
    ORDER BY u.tenant, u.id LIMIT $most::bigint FOR UPDATE OF u, j SKIP LOCKED
), placed AS (
    UPDATE detent.jobs AS j SET lane = chosen.lane FROM chosen
    WHERE j.tenant = chosen.tenant AND j.id = chosen.id
), done AS (
    DELETE FROM detent.unplaced AS u USING chosen WHERE u.tenant = chosen.tenant AND u.id = chosen.id
), counted AS (
    INSERT INTO detent.tallies (lane, state, count)
    SELECT lane, state, count(*) FROM chosen GROUP BY lane, state
)
SELECT count(*) AS count FROM chosen
