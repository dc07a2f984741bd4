-- One function, called in the words of each kind of driver.

-- name: in_format
SELECT detent.enqueue(%s, %s)

-- name: by_number
SELECT detent.enqueue($1, $2)

-- name: by_name
SELECT detent.enqueue(CAST(:units AS text), CAST(:now AS bigint))
