-- name: stored
SELECT s.* FROM unnest($tenants::text[], $ids::text[]) AS told (tenant, id)
JOIN detent.stored AS s ON s.tenant = told.tenant AND s.id = told.id

-- name: found
SELECT s.* FROM (
    WITH RECURSIVE tenants AS (
        (SELECT j.tenant FROM detent.jobs AS j
        WHERE $tenant::text IS NULL OR j.tenant = $tenant ORDER BY j.tenant LIMIT 1)
        UNION ALL
        SELECT (
            SELECT j.tenant FROM detent.jobs AS j WHERE j.tenant > tenants.tenant
            ORDER BY j.tenant LIMIT 1
        ) FROM tenants WHERE tenants.tenant IS NOT NULL AND $tenant::text IS NULL
    )
    SELECT one.tenant, one.id FROM tenants CROSS JOIN LATERAL (
        SELECT j.tenant, j.id FROM detent.jobs AS j
        LEFT JOIN detent.lanes AS l ON l.lane = j.lane
        LEFT JOIN detent.unplaced AS u
            ON j.lane IS NULL AND u.tenant = j.tenant AND u.id = j.id
        WHERE j.tenant = tenants.tenant AND ($after::text IS NULL OR j.id < $after)
            AND ($queue::text IS NULL OR j.queue = $queue)
            AND ($state::text IS NULL OR j.state = $state)
            AND ($type::text IS NULL OR coalesce(l.type, u.type) = $type)
            AND ($profile::text IS NULL OR j.profile = $profile)
        ORDER BY j.id DESC LIMIT $most::bigint
    ) AS one
    ORDER BY one.id DESC, one.tenant DESC LIMIT $most::bigint
) AS page JOIN detent.stored AS s ON s.tenant = page.tenant AND s.id = page.id
ORDER BY s.id DESC, s.tenant DESC

-- name: held_by
SELECT s.* FROM detent.stored AS s WHERE s.holder = $holder AND s.lease IS NOT NULL
ORDER BY s.tenant, s.id LIMIT $most::bigint

-- name: counts
SELECT c.tenant, c.queue, c.state, sum(c.count)::bigint AS count
FROM (
    SELECT l.tenant, l.queue, t.state, t.count
    FROM detent.tallies AS t JOIN detent.lanes AS l ON l.lane = t.lane
    UNION ALL
    SELECT j.tenant, j.queue, j.state, 1
    FROM detent.unplaced AS u JOIN detent.jobs AS j ON j.tenant = u.tenant AND j.id = u.id
) AS c
WHERE $tenant::text IS NULL OR c.tenant = $tenant
GROUP BY c.tenant, c.queue, c.state HAVING sum(c.count) > 0
ORDER BY c.tenant, c.queue, c.state

-- name: history
SELECT {{event_of_e}} FROM detent.events AS e
WHERE e.tenant = $tenant AND e.record = $record ORDER BY e.version

-- name: histories
SELECT told.number, coalesce(f.pos, 0) AS pos, {{event_of_e}}
FROM unnest($tenants::text[], $records::text[]) WITH ORDINALITY AS told (tenant, record, number)
JOIN detent.events AS e ON e.tenant = told.tenant AND e.record = told.record
LEFT JOIN detent.feed AS f
    ON f.tenant = e.tenant AND f.record = e.record AND f.version = e.version
ORDER BY told.number, e.version

-- name: leases
SELECT lease, until FROM detent.leases WHERE lease = ANY ($leases::text[])

-- name: logs
SELECT tenant, id, cursor, at, text, level, pos FROM detent.logs
WHERE tenant = $tenant AND id = $id AND cursor > $after::bigint
ORDER BY cursor LIMIT $most::bigint

-- name: log_tail
SELECT tenant, id, cursor, at, text, level, pos FROM detent.logs
WHERE pos > $after::bigint ORDER BY pos LIMIT $most::bigint

-- name: keys
SELECT tenant, id FROM detent.jobs
WHERE (tenant, id) > ($tenant::text, $id::text) ORDER BY tenant, id LIMIT $most::bigint
