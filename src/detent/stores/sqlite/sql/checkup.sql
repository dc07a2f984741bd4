-- name: quick_check
-- Also its first complaint is enough: who gets one looks no further, but takes a backup.
PRAGMA quick_check(1)

-- name: unsealed
-- Events from here on are not sealed; how many, and when the oldest of them happened.
WITH sealed (pos) AS (SELECT coalesce(max(first_pos + count - 1), 0) FROM detent_blocks)
SELECT coalesce((SELECT max(pos) FROM detent_events), 0) - (SELECT pos FROM sealed) AS behind,
    (SELECT at FROM detent_events WHERE pos > (SELECT pos FROM sealed) ORDER BY pos LIMIT 1) AS at
