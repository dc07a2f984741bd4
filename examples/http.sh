#!/bin/sh
# A job over HTTP from end to end, with nothing but curl: pushed, fetched, failed, tried again, done.
set -eu

dir=$(mktemp -d)
: > "$dir/log"
detent serve --store "sqlite:///$dir/jobs.db" --port 0 2>> "$dir/log" &
server=$!
trap 'kill $server; wait $server || true; rm -rf "$dir"' EXIT

url=
until [ -n "$url" ]; do
  url=$(sed -n 's/.*running on \(http[^ ]*\).*/\1/p' "$dir/log")
  kill -0 $server
  sleep 0.1
done
api="$url/ojs/v1"

post() { curl -sS --fail-with-body -H 'Content-Type: application/json' -d "$2" "$api$1"; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

id=$(post /jobs '{"type":"mail.send","args":["you@example.com"],
  "options":{"retry":{"initial_interval":"PT0.1S","jitter":false}}}' | field id)
echo "pushed, and it is $(curl -sS "$api/jobs/$id" | field state)"

post /workers/fetch '{"queues":["default"],"worker_id":"me"}' > "$dir/fetched"
post /workers/nack "{\"job_id\":\"$id\",\"error\":{\"code\":\"smtp_down\",\"message\":\"no answer\"}}" > "$dir/failed"
echo "fetched and failed, so it is $(sed 's/,"job":.*//' "$dir/failed" | field state)"

# A fetch may wait for a job to come: nobody has to ask again and again.
post /workers/fetch '{"queues":["default"],"worker_id":"me","wait_ms":10000}' > "$dir/fetched"
post /workers/ack "{\"job_id\":\"$id\",\"result\":{\"sent\":1}}" > "$dir/done"
echo "fetched again and done, so it is $(sed 's/,"job":.*//' "$dir/done" | field state)"
echo "its result: $(curl -sS "$api/jobs/$id/result" | sed 's/.*"result":\({[^}]*}\).*/\1/')"
