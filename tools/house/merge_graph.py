#!/usr/bin/env python3
"""Check merge tables: every module once, cycles between targets, sizes, collisions of top-level names.

usage: merge_graph.py TABLE.json ...   (modules that no table names stay as they are)
"""
import ast, json, pathlib, sys
from collections import defaultdict
ROOT = pathlib.Path("/work/main/src")
mods = {}
for f in ROOT.rglob("*.py"):
    m = ".".join(f.relative_to(ROOT).with_suffix("").parts)
    mods[m[:-9] if m.endswith(".__init__") else m] = f
target, tables = {}, {}
for name in sys.argv[1:]:
    table = json.load(open(name))
    for t, e in table.items():
        tables[t] = e
        for m in e["from"]:
            if m not in mods: print("NO SUCH MODULE", m, "in", t)
            if m in target: print("TWICE", m, target[m], t)
            target[m] = t
lanes = sorted({".".join(m.split(".")[:2]) for m in target})
for m in sorted(mods):
    if m not in target and ".".join(m.split(".")[:2]) in lanes and mods[m].name != "__init__.py": print("NOT IN A TABLE", m)
def top(body):
    for n in body:
        if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.dump(n.test): yield from top(n.orelse)
        elif isinstance(n, (ast.If, ast.Try, ast.With)):
            yield n; yield from top(n.body)
        else: yield n
def imports(m):
    out = set()
    for n in top(ast.parse(mods[m].read_text()).body):
        if isinstance(n, ast.ImportFrom) and n.module and n.module.split(".")[0] == "detent":
            for a in n.names:
                sub = f"{n.module}.{a.name}"
                out.add(sub if sub in mods else n.module)
        elif isinstance(n, ast.Import):
            out |= {a.name for a in n.names if a.name.split(".")[0] == "detent"}
    return out
T = lambda m: target.get(m, m)
g = defaultdict(set)
why = {}
for m in mods:
    for d in imports(m):
        if d in mods and T(m) != T(d):
            g[T(m)].add(T(d)); why.setdefault((T(m), T(d)), []).append(f"{m} -> {d}")
# strongly connected components
index, low, stack, on, sccs = {}, {}, [], set(), []
sys.setrecursionlimit(10000)
def visit(v):
    index[v] = low[v] = len(index); stack.append(v); on.add(v)
    for w in g[v]:
        if w not in index: visit(w); low[v] = min(low[v], low[w])
        elif w in on: low[v] = min(low[v], index[w])
    if low[v] == index[v]:
        c = []
        while True:
            w = stack.pop(); on.discard(w); c.append(w)
            if w == v: break
        if len(c) > 1: sccs.append(c)
for v in list(g): 
    if v not in index: visit(v)
for c in sccs:
    print("CYCLE", sorted(c))
    for a in c:
        for b in g[a]:
            if b in c: print("   ", a, "->", b, "because", "; ".join(why[a, b][:4]))
names = defaultdict(lambda: defaultdict(set))
for m, t in target.items():
    for n in ast.parse(mods[m].read_text()).body:
        found = []
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)): found = [n.name]
        elif isinstance(n, ast.Assign): found = [x.id for x in n.targets if isinstance(x, ast.Name)]
        elif isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name): found = [n.target.id]
        for x in found: names[t][x].add((m, ast.unparse(n)))
for t, found in sorted(names.items()):
    for x, places in found.items():
        if len({text for _, text in places}) > 1: print("COLLISION", t, x, "in", sorted({m for m, _ in places}))
sizes = defaultdict(int)
for m, t in target.items(): sizes[t] += len(mods[m].read_text().splitlines())
print("targets:", len(sizes), "of", len(target), "modules")
for t, s in sorted(sizes.items(), key=lambda x: -x[1])[:25]: print(f"{s:6} {t}")
