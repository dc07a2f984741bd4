import json, ast, pathlib, collections, sys
ROOT=pathlib.Path('/work/main')
refs=json.load(open('/tmp/refs/out.json'))
T=json.load(open('/work/tables/runtime.merge.json'))
tgt={m:t for t,e in T.items() for m in e['from']}
def path(m):
    p=ROOT/'src'/(m.replace('.','/')+'.py')
    return p if p.exists() else ROOT/'src'/m.replace('.','/')/'__init__.py'
# index members: defining class fullname -> attr -> list refs
byclass=collections.defaultdict(list); byname=collections.defaultdict(set)
for f,l,c,name,who,kind in refs:
    if f.startswith('./'): f=f[2:]
    byclass[who,name].append((f,l,c,kind)); byname[name].add(who)
out=[]; err=[]
cur=None
seen=set()
trees={}
def tops(m):
    if m not in trees:
        names={}
        for n in ast.parse(path(m).read_text()).body:
            stack=[n]
            while stack:
                n=stack.pop()
                if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): names[n.name]=n
                elif isinstance(n,ast.Assign):
                    for x in n.targets:
                        for y in ast.walk(x):
                            if isinstance(y,ast.Name): names[y.id]=n
                elif isinstance(n,ast.AnnAssign): names[n.target.id]=n
                elif isinstance(n,(ast.If,ast.Try)): stack+=n.body+n.orelse
        trees[m]=names
    return trees[m]
def members(cls):
    s=set()
    for n in ast.walk(cls):
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)): s.add(n.name)
        elif isinstance(n,ast.AnnAssign):
            if isinstance(n.target,ast.Name): s.add(n.target.id)
            elif isinstance(n.target,ast.Attribute): s.add(n.target.attr)
        elif isinstance(n,ast.Assign):
            for x in n.targets:
                for y in ast.walk(x):
                    if isinstance(y,ast.Name): s.add(y.id)
                    elif isinstance(y,ast.Attribute) and isinstance(y.value,ast.Name) and y.value.id=='self': s.add(y.attr)
    return s
entries=[]
for fn in ('runtime','surfaces'):
    for line in open(f'/tmp/rn/{fn}.txt'):
        line=line.split('#')[0].strip()
        if not line: continue
        if line[0]=='@': cur='detent.'+line[1:]; continue
        old,new=line.split()
        if old==new: continue
        entries.append((cur,old,new))
for m,old,new in entries:
    key=(m,old)
    if key in seen: err.append(f'TWICE {key}'); continue
    seen.add(key)
    t=tops(m)
    if '.' not in old:
        if old not in t: err.append(f'NO TOP {m}:{old}'); continue
        out.append({"old":f"{m}:{old}","new":new})
    else:
        c,a=old.split('.')
        if c not in t: err.append(f'NO CLASS {m}:{c}'); continue
        if a not in members(t[c]): err.append(f'NO MEMBER {m}:{old}'); continue
        if new in members(t[c]) and (m,f'{c}.{new}') not in {(x,y) for x,y,_ in entries}: err.append(f'MEMBER CLASH {m}:{old} -> {new}')
        out.append({"old":f"{m}:{old}","new":new,"_m":m,"_c":c,"_a":a})
# collisions of new top names within target
names=collections.defaultdict(lambda: collections.defaultdict(set))
ren={(m,o):n for m,o,n in entries if '.' not in o}
for m in tgt:
    if not path(m).exists(): continue
    for n in tops(m): names[tgt[m]][ren.get((m,n),n)].add((m,n))
for t,d in names.items():
    for n,places in d.items():
        if len(places)>1:
            texts={ast.unparse(tops(m)[o]).replace(o,'X') for m,o in places}
            err.append(f'{"COLL" if len(texts)>1 else "same"} {t} {n} {sorted(places)}')
# new name colliding with import in target
for m,o,n in entries:
    if '.' in o: continue
    for m2 in T[tgt[m]]['from']:
        src=ast.parse(path(m2).read_text())
        for x in ast.walk(src):
            if isinstance(x,ast.ImportFrom):
                for al in x.names:
                    nm=al.asname or al.name
                    real=ren.get((x.module,al.name),al.name) if not al.asname else nm
                    if real==n and not (x.module==m and al.name==o): err.append(f'IMPORT {tgt[m]} new {n} (from {m}:{o}) vs import in {m2} of {x.module}.{al.name}')
# users of renamed names: clash in the importing module with its own names
for p in list((ROOT/'src').rglob('*.py')):
    m2='.'.join(p.relative_to(ROOT/'src').with_suffix('').parts).removesuffix('.__init__')
    src=ast.parse(p.read_text())
    own={ren.get((m2,n),n) for n in tops(m2)}
    imps=collections.defaultdict(set)
    for x in ast.walk(src):
        if isinstance(x,ast.ImportFrom):
            for al in x.names:
                real=ren.get((x.module,al.name),al.name) if not al.asname else al.asname
                imps[real].add((x.module,al.name))
    for k,v in imps.items():
        if any((a,b) in ren for a,b in v):
            if k in own: err.append(f'USER {m2}: imported {k} {v} vs own')
            if len(v)>1: err.append(f'USER {m2}: two imports {k} {v}')
print('\n'.join(err))
print(len(out), sum('_c' in x for x in out))
pathlib.Path('/tmp/rn/out.json').write_text(json.dumps(out))
