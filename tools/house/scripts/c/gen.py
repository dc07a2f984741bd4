import json,sys
exec(open("/tmp/c/ren.py").read())
out=[{"old":f"{m}:{o}","new":n} for m,o,n in R]
try: out+=json.load(open("/tmp/c/members.json"))
except FileNotFoundError: pass
import subprocess
head=subprocess.run(["git","-C","/work/main","log","-1","--format=%h"],capture_output=True,text=True).stdout.strip()
out.append({"about":f"Members: `where` is path:line:col (col from 0) at main {head}, found by mypy's types (rerun: .venv/bin/python /tmp/c/typed.py in /work/main, then python3 /tmp/c/genm.py, python3 /tmp/c/gen.py). Apply members before merging. Apply together with engine.rename.json: shapes:Unit becomes Change and engine.commands:Change becomes JobCommand (a swap). Strings in tests that name things: tests/contract/test_workers.py:235 'Stale' (type name); monkeypatch.setattr strings in tests/postgres/test_nearby.py, test_word.py, test_lone.py, tests/sqlite/test_sleeping.py, test_together.py, test_growing.py, tests/engine/test_fates.py; tests/surfaces/test_streams_memory.py getattr(store, name)."})
json.dump(out,open("/work/tables/stores.rename.json","w"),indent=0,ensure_ascii=False)
print(len(out))
