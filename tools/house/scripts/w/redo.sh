#!/usr/bin/env bash
# Make /work/tables/engine.{merge,rename}.json anew for the present main (about two minutes).
set -e
rm -rf /tmp/w/snap; mkdir -p /tmp/w/snap
git -C /work/main archive HEAD src tests bench tools examples docs pyproject.toml README.md | tar x -C /tmp/w/snap
git -C /work/main rev-parse --short HEAD > /tmp/w/commit
(cd /tmp/w/snap && /work/bin/slot /work/main/.venv/bin/python /tmp/w/refs.py)
cd /tmp/w && python3 emit.py && (python3 coll.py /work/tables/engine.merge.json > coll.txt || true) && python3 emit2.py
