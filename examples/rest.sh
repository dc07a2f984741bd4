#!/bin/sh
# A web application's own job, with nothing but curl: started, followed until its end, read once more.
set -eu

dir=$(mktemp -d)
: > "$dir/log"
cat > "$dir/site.py" <<'PROGRAM'
from detent import Context, Detent

app = Detent()

@app.job(name="build-site", secret=("token",))
async def build_site(ctx: Context, branch: str, token: str) -> dict[str, str]:
    ctx.log(f"building {branch} with {token}")
    ctx.log("done")
    return {"url": f"https://{branch}.example.com"}
PROGRAM

store="sqlite:///$dir/jobs.db"
detent serve --app "$dir/site.py" --store "$store" --port 0 2>> "$dir/log" &
server=$!
detent worker "$dir/site.py" --store "$store" --state-dir "$dir/state" > "$dir/worker" 2>&1 &
worker=$!
trap 'kill $server $worker; wait $server $worker || true; rm -rf "$dir"' EXIT

url=
until [ -n "$url" ]; do
  url=$(sed -n 's/.*running on \(http[^ ]*\).*/\1/p' "$dir/log")
  kill -0 $server
  sleep 0.1
done
api="$url/api/jobs"

start() {
  curl -sS --fail-with-body -H 'Content-Type: application/json' -H 'Idempotency-Key: build-7' \
    -d '{"action":"build-site","inputs":{"branch":"main","token":"t0p-s3cret"}}' "$api"
}
field() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

id=$(start | field id)
[ "$(start | field id)" = "$id" ] && echo "the same request twice is one job"

# The stream ends by itself, after the last status.
curl -sSN "$api/$id/events" | grep -e '"line"' -e '"success"'

echo "its inputs:$(curl -sS "$api/$id" | sed 's/.*"inputs":/ /; s/},"logs".*//')"
