import json, collections, re, pathlib, subprocess, sys
sys.argv=['x']
exec(open('/tmp/rn/make.py').read().replace("/tmp/refs/out.json", sys.argv[1] if len(sys.argv)>1 else REFS if 'REFS' in globals() else "/tmp/refs/out.json").replace("print('\\n'.join(err))","print('\\n'.join(e for e in err if not e.startswith('same')))"))
from protos import load
classes=load()
# names that collide today within a target
coll=set()
today=collections.defaultdict(lambda: collections.defaultdict(set))
for m in tgt:
    if path(m).exists():
        for n in tops(m): today[tgt[m]][n].add(m)
for t,d in today.items():
    for n,ms in d.items():
        if len(ms)>1 and len({ast.unparse(tops(m)[n]) for m in ms})>1:
            for m in ms: coll.add((m,n))
coll|={('detent.surfaces.engines.desk','ENGINE'),('detent.surfaces.engines.desk','EVENTS')}
result=[]
for e in out:
    if '_c' in e: continue
    m,n=e['old'].split(':')
    result.append({('collision' if (m,n) in coll else 'old'):e['old'],'new':e['new']})
for m,n in sorted(coll):
    if (m,n) not in ren: print('collision without rename', m, n)
# members
members_=[e for e in out if '_c' in e]
def resolve(fn,depth=0):
    """follow re-exports: return class table key"""
    return fn if fn in classes else None
subs=collections.defaultdict(set); sup=collections.defaultdict(set)
for fn,c in classes.items():
    for b in c['bases']:
        if b in classes: subs[b].add(fn); sup[fn].add(b)
def closure(fn,rel):
    seen=set(); st=[fn]
    while st:
        x=st.pop()
        for y in rel[x]:
            if y not in seen: seen.add(y); st.append(y)
    return seen
WAITING={'detent.runtime.supervisor.body.Waiting':{'detent.runtime.process.body.ProcessBody','tests.runtime.supervisor.stage.Puppet'}}
isproto={fn for fn,c in classes.items() if any(b in ('typing.Protocol',) or b.endswith('.Protocol') and b.startswith('typing') for b in c['bases'])}
def allmembers(fn):
    s=set(classes[fn]['own'])
    for b in closure(fn,sup): s|=set(classes[b]['own'])
    return s
am={fn:allmembers(fn) for fn in classes}
want={}
for e in members_: want[f"{e['_m']}.{e['_c']}",e['_a']]=e['new']
extra=[]
def implementers(p):
    need={n for n in classes[p]['own'] if not n.startswith('__')}
    return {fn for fn in classes if fn!=p and len(need)>1 and need<=am[fn]} | WAITING.get(p,set())
impl={p:implementers(p) for p in isproto}
group={}
for (fn,a),new in list(want.items()):
    if fn not in classes: print('no class',fn); continue
    rel=set()
    for x in closure(fn,subs)|closure(fn,sup):
        if a in classes[x]['own']: rel.add(x)
    for p in isproto:
        if a in classes[p]['own'] and (fn==p or fn in impl[p]):
            rel|={i for i in impl[p] if a in classes[i]['own']}|{p}
    for x in rel:
        if x==fn: continue
        if (x,a) in want:
            if want[x,a]!=new: print('INCONSISTENT',fn,a,new,'vs',x,want[x,a])
        else: extra.append((x,a,new,fn))
for x in sorted(set(extra)): print('RELATED',x)
