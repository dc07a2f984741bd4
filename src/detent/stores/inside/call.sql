-- One function for new jobs and one for an end, called in the words of each kind of driver.

-- name: enqueue_in_format
SELECT detent.enqueue(%s, %s)

-- name: enqueue_by_number
SELECT detent.enqueue($1, $2)

-- name: enqueue_by_name
SELECT detent.enqueue(CAST(:units AS text), CAST(:now AS bigint))

-- name: complete_in_format
SELECT detent.complete(%s, %s)

-- name: complete_by_number
SELECT detent.complete($1, $2)

-- name: complete_by_name
SELECT detent.complete(CAST(:units AS text), CAST(:now AS bigint))
