import ast,sys,json
src=open('/work/bin/merge_graph.py').read().split('T = lambda')[0]
table=sys.argv[1]; sys.argv=['x',table]; exec(src)
from collections import defaultdict
def binds(m):
    tree=ast.parse(mods[m].read_text())
    def walk(body):
        for n in body:
            if isinstance(n,ast.If): yield from walk(n.body); yield from walk(n.orelse)
            elif isinstance(n,(ast.Try,ast.With)): yield from walk(n.body)
            else: yield n
    for n in walk(tree.body):
        if isinstance(n,ast.ImportFrom):
            for a in n.names: yield (a.asname or a.name), f"import {n.module}:{a.name}"
        elif isinstance(n,ast.Import):
            for a in n.names: yield (a.asname or a.name.split('.')[0]), f"import {a.name if a.asname else a.name.split('.')[0]}"
        elif isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): yield n.name, f"def {m}:{n.name} "+ast.unparse(n)
        elif isinstance(n,ast.Assign):
            for t in n.targets:
                if isinstance(t,ast.Name): yield t.id, f"def {m}:{t.id} "+ast.unparse(n)
                elif isinstance(t,ast.Tuple):
                    for x in t.elts: yield x.id, f"def {m}:{x.id} "+ast.unparse(n)
        elif isinstance(n,ast.AnnAssign) and isinstance(n.target,ast.Name): yield n.target.id, f"def {m}:{n.target.id} "+ast.unparse(n)
for t,e in tables.items():
    if len(e['from'])<2: continue
    by=defaultdict(set)
    for m in e['from']:
        for n,w in binds(m):
            # an import of a sibling merged here is the def itself
            if w.startswith('import ') and ':' in w:
                mm,nn=w[7:].split(':')
                if mm in e['from'] and nn==n: continue
                if mm in e['from']: w=f'ALIAS {mm}:{nn}'
                if f"{mm}.{nn}" in e['from']: w=f'SIBLING MODULE {mm}.{nn}'
            key=w if not w.startswith('def') else 'def '+w.split(' ',2)[2]
            by[n].add((key, w[:80]))
    for n,s in by.items():
        if len({k for k,_ in s})>1 or any('SIBLING' in k or 'ALIAS' in k for k,_ in s): print(t,n,sorted(w for _,w in s))
