#!/bin/sh
# A Jobnik job with nothing but curl: two stages, an approval between them, and a task that fails once.
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

ask() { curl -sS --fail-with-body -X "$1" -H 'Content-Type: application/json' ${3:+-d "$3"} "$url/v1$2"; }
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }
first() { sed 's/,.*//' | field id; }

job=$(ask POST /jobs '{"name":"tiles","data":{"area":"north"},"priority":"HIGH"}' | first)
cut=$(ask POST "/jobs/$job/stage" '{"type":"cut","data":{}}' | first)
publish=$(ask POST "/jobs/$job/stage" '{"type":"publish","data":{},"startAsWaiting":true}' | first)
ask POST "/stages/$cut/tasks" '[{"data":{"zoom":1},"maxAttempts":2}]' > "$dir/tasks"
ask POST "/stages/$publish/tasks" '[{"data":{}}]' > "$dir/tasks"
echo "made, and it is $(ask GET "/jobs/$job" | field status)"

task=$(ask PATCH /stages/cut/tasks/dequeue | first)
echo "failed once, so the task is $(ask PUT "/tasks/$task/status" '{"status":"FAILED"}' | field status)"
task=$(ask PATCH /stages/cut/tasks/dequeue | first)
echo "tried again, and it is $(ask PUT "/tasks/$task/status" '{"status":"COMPLETED"}' | field status)"
echo "the next stage is $(ask GET "/stages/$publish" | field status)"

ask PUT "/stages/$publish/status" '{"status":"PENDING"}' > "$dir/released"
task=$(ask PATCH /stages/publish/tasks/dequeue | first)
ask PUT "/tasks/$task/status" '{"status":"COMPLETED"}' > "$dir/done"
echo "released and done, so the job is $(ask GET "/jobs/$job" | field status)"
detent workflow tree "$job" --store "sqlite:///$dir/jobs.db" | sed 's/ [0-9a-f-]\{36\}//'
