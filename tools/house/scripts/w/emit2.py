import sys; sys.argv=['build']
exec(open('/tmp/w/build.py').read())
import tokenize,io
from collections import Counter
S=pathlib.Path('/tmp/w/snap')
refs=json.load(open('/tmp/w/refs.json'))
def norm(p): return p.split('/tmp/w/snap/')[-1]
mro=refs['mro']
files=[f for d in('src','tests','bench','tools','examples') for f in (S/d).rglob('*.py')]
lines={}; tokens=defaultdict(set)  # name -> {(path,line,col)}
strs=defaultdict(list)
for f in files:
    p=str(f.relative_to(S)); t=f.read_text(); lines[p]=t.splitlines()
    try:
        for k in tokenize.generate_tokens(io.StringIO(t).readline):
            if k.type==tokenize.NAME: tokens[k.string].add((p,k.start[0],k.start[1]))
            elif k.type==tokenize.STRING:
                try: v=ast.literal_eval(k.string)
                except Exception: continue
                if isinstance(v,str) and v.isidentifier(): strs[v].append((p,k.start[0],k.start[1]))
    except Exception as e: print('tok',p,e)
docs=defaultdict(list)
for f in [*(S/'docs').rglob('*.md'), S/'README.md']:
    for i,l in enumerate(f.read_text().splitlines(),1):
        for w in set(re.findall(r'[A-Za-z_][A-Za-z_0-9]*',l)): docs[w].append(f'{f.relative_to(S)}:{i}')
byname=defaultdict(list)
for r in refs['rows']:
    byname[r[4]].append(r)
full=lambda m,c: f'{m}.{c}'
isub=defaultdict(set)
for k,v in mro.items():
    for b in v: isub[b].add(k)
def pos(r,o):
    p=norm(r[0]); L=lines.get(p)
    if L is None: return None
    if r[3]=='attr':
        ln,c=r[6],r[7]-len(o)
        if 0<ln<=len(L):
            s=L[ln-1].encode()[:r[7]].decode(errors='ignore')
            if s.endswith(o): return (p,ln,len(s)-len(o))
        return None
    if r[3]=='def':
        for d in range(0,12):
            if r[1]-1+d<len(L):
                m=re.search(r'(?:def\s+|^\s*(?:[\w, ]*,\s*)?)'+re.escape(o)+r'\b',L[r[1]-1+d])
                if m: return (p,r[1]+d,m.end()-len(o))
        return None
    if r[3] in('kw','pattern'):
        for d in range(0,3):
            l=L[r[1]-1-d]
            seg=l if d or r[3]=='pattern' else l.encode()[:r[2]].decode(errors='ignore')
            ms=list(re.finditer(r'\b'+re.escape(o)+r'\s*=',seg))
            if ms: return (p,r[1]-d,ms[-1].start())
        return None
    if r[3]=='super':
        for d in range(0,3):
            if r[1]-1+d<len(L):
                m=re.search(r'super\(\)\.'+re.escape(o)+r'\b',L[r[1]-1+d])
                if m: return (p,r[1]+d,m.end()-len(o))
        return None
    if r[3]=='clsname': return (p,r[1],r[2])
newof=defaultdict(dict)
for m,c,o,n in mem:
    for k in {full(m,c)}|isub[full(m,c)]: newof[o][k]=n
out=[]
unres=[]
posmap={}
cls={}
for m,c,o,n in mem:
    ks={full(m,c)}|isub[full(m,c)]
    got=set()
    for r in byname[o]:
        if r[3]=='param': continue
        if ks & set(r[5]):
            q=pos(r,o)
            if q is None: unres.append((m,c,o,r)); continue
            got.add(q)
    # self.x in protocols/class bodies: slots strings
    posmap[m,c,o]=got
acc=defaultdict(lambda: defaultdict(set))
for (m,c,o),g in posmap.items():
    n=[x[3] for x in mem if x[:3]==(m,c,o)][0]
    for q in g: acc[o][n].add(q)
amb=[]
for o,ns in acc.items():
    seen=Counter(q for n in ns for q in ns[n])
    for q,k in seen.items():
        if k>1: amb.append((o,q))
TW={}
for (m,c,o) in [(x[0],x[1],x[2]) for x in mem if x[0].startswith(('detent.runtime','detent.surfaces'))]: TW[m,c,o]=1
for m,o,n in ren:
    e={'old':f'{m}:{o}','new':n}
    t=next((t for t,x in table.items() if m in x['from']),None)
    # collision?
    s=[f'{p}:{l}' for p,l,c in strs.get(o,[]) if re.search(r'setattr|getattr|patch|hasattr|delattr|_HOME|__all__',lines[p][l-1]) or (p=='src/detent/__init__.py')]
    if s: e['strings']=s
    if (re.search('[A-Z]',o[1:]) or '_' in o.strip('_')) and docs.get(o): e['docs']=docs[o][:20]
    out.append(e)
for m,c,o,n in mem:
    g=posmap[m,c,o]
    alltok=tokens[o]
    covered=acc[o].get(n,set())
    e={'old':f'{m}:{c}.{o}','new':n}
    safe=len(acc[o])==1 and alltok==covered and g<=alltok and not docs.get(o) and not [1 for x in strs.get(o,[])]
    e['safe']=bool(safe)
    if not safe:
        byf=defaultdict(set)
        for p,l,k in g: byf[p].add((p,l,k))
        whole=[p for p in byf if {q for q in alltok if q[0]==p}<=covered]
        e['where']=sorted(whole)
        at=sorted(f'{p}:{l}:{k}' for p,l,k in g if p not in whole or (p,l,k) not in alltok)
        if at: e['at']=at
    cn=TOP[m][c]; mp=str(mods[m].relative_to(S))
    sl=[f'{p}:{l}:{k+1}' for p,l,k in strs.get(o,[]) if p==mp and cn.lineno<=l<=cn.end_lineno and any('__slots__' in x for x in lines[p][max(0,l-8):l]) and not re.search(r'[.]append|==',lines[p][l-1])]
    slo=[n2 for n2 in cn.body if isinstance(n2,ast.Assign) and any(isinstance(t2,ast.Name) and t2.id=='__slots__' for t2 in n2.targets)]
    sl=[x for x in sl if slo and slo[0].lineno<=int(x.split(':')[1])<=slo[0].end_lineno]
    if sl: e['slots']=sl
    ss=[f'{p}:{l}' for p,l,k in strs.get(o,[]) if re.search(r'setattr|getattr|patch|hasattr',lines[p][l-1]) and '__slots__' not in lines[p][l-1]]
    if ss and not safe: e['strings']=ss
    if (m,c,o) in TW: e['note']='twin: belongs to another lane, must change together with the engine side'
    out.append(e)
import json as J
collide=[]
E2=[]
J.dump(out,open('/tmp/w/rename.json','w'),indent=1)
print(len(out),'entries; safe',sum(e.get('safe') is True for e in out),'unresolved',len(unres),'ambiguous',len(amb), 'member without occurrences',[k for k,v in posmap.items() if not v][:40])
print(unres[:20]); print(amb[:10])
# any-typed attribute accesses of renamed members
anyr=[(o,norm(r[0]),r[1]) for o in acc for r in byname[o] if r[3]=='attr' and (not r[5] or 'ANY' in r[5])]
print('any-typed',len(anyr)); print(anyr[:60])
coll=set()
for l in open('/tmp/w/coll.txt'):
    w=l.split(' ',2)
    for m,x in re.findall(r'def (detent[\w.]*):(\w+)',l):
        if x==w[1]: coll.add((m,x))
final=[]
for e in out:
    m,_,o=e['old'].partition(':')
    if (m,o) in coll and o.startswith('_'):
        e={'collision':e['old'],**{k:v for k,v in e.items() if k!='old'}}
    final.append(e)
done={tuple((e.get('old') or e.get('collision')).split(':')) for e in final}
for m,o in sorted(coll):
    if (m,o) not in done: print('collision not renamed (one of a pair may keep it)',m,o)
import subprocess
exec(open('/tmp/w/vars.py').read())
final+=vout
COMMIT=open('/tmp/w/commit').read().strip()
final.insert(0,{'about':'`where`: files in which every occurrence of the identifier (as code) has this meaning. `at`: path:line:col (col from 0) of the right occurrences in files where it has several meanings, found by mypy types at main '+COMMIT+'; `bash /tmp/w/redo.sh` makes all of it anew for the main of that moment. `strings`: string literals that name it (setattr, __slots__, lazy tables). `docs`: lines of docs that have the word. `variable`: local variables and parameters of that type, with the keyword arguments that name them: only if wanted. `slots`: the same in __slots__. Apply all positions of a file in one pass, from its end to its beginning, before the merge; /tmp/w/simulate.py does it (on a copy), and mypy is green after it.'})
J.dump(final,open('/work/tables/engine.rename.json','w'),indent=1)
print(len(final))
