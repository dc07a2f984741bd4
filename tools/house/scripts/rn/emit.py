REFS="/tmp/refs/out2.json"
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as buf:
    exec(open('/tmp/rn/finish.py').read())
HEAD=subprocess.run(['git','-C','/work/main','log','-1','--format=%h'],capture_output=True,text=True).stdout.strip()
for x,a,new,fn in sorted(set(extra)):
    if a=='bury' or x.startswith('detent.app.') or x=='detent.runtime.context.Asking': continue
    want.setdefault((x,a),new)
text={}
def lines(f):
    if f not in text: text[f]=(ROOT/f).read_text().splitlines()
    return text[f]
def fix(f,l,c,kind,name):
    L=lines(f)
    s=L[l-1]
    if kind=='def':
        # decorated defs: line of def
        for k in range(l,min(l+12,len(L)+1)):
            mt=re.search(r'\bdef\s+'+re.escape(name)+r'\b',L[k-1])
            if mt: return (f,k,mt.end()-len(name))
        return None
    b=s.encode(); 
    if kind in('use','field'):
        cc=len(b[:c].decode(errors='ignore'))
        if s[cc:cc+len(name)]==name: return (f,l,cc)
        # super() etc
        i=s.find(name)
        return (f,l,i) if s.count(name)==1 else None
    if kind=='kw':
        cc=len(b[:c].decode(errors='ignore'))
        i=s.rfind(name,0,cc)
        if i>=0 and re.match(re.escape(name)+r'\s*=',s[i:]): return (f,l,i)
        for k in (l-1,l-2):
            q=L[k-1]; i=q.rfind(name)
            if i>=0 and re.match(re.escape(name)+r'\s*=',q[i:]): return (f,k,i)
        return None
bycls=collections.defaultdict(list); unknown=collections.defaultdict(list)
for f,l,c,name,who,kind in refs:
    f=f[2:] if f.startswith('./') else f
    f=f.removeprefix('/work/main/')
    bycls[who,name].append((f,l,c,kind))
    if who in('?',) or who.startswith('@'): unknown[name].append((f,l,c,who))
DIRS=['src','tests','docs','bench','tools','examples','README.md']
occ=collections.Counter(); occf=collections.defaultdict(set)
names={a for _,a in want}
wordre=re.compile(r'[A-Za-z_]\w*')
for d in DIRS:
    p=ROOT/d
    for f in ([p] if p.is_file() else [x for x in p.rglob('*') if x.is_file() and x.suffix in('.py','.md','.toml','.txt','.json','.sql','.yml','.js','.html','.jsonl') and '__pycache__' not in x.parts]):
        try: t=f.read_text()
        except Exception: continue
        for w in wordre.findall(t):
            if w in names: occ[w]+=1; occf[w].add(str(f.relative_to(ROOT)))
final=[]; members_out=[]
pos={}
for (fn,a),new in want.items():
    ps=set(); miss=[]
    for f,l,c,k in bycls.get((fn,a),[]):
        q=fix(f,l,c,k,a)
        (ps.add(q) if q else miss.append((f,l,c,k)))
    strs=[]
    if fn in classes:
        for f,l,c in classes[fn]['strs'].get(a,[]):
            L=lines(f)[l-1]
            # slots or need("field")
            if re.search(r'__slots__',L) or any('__slots__' in lines(f)[k] for k in range(max(0,l-20),l)) and re.fullmatch(r'\s*"\w+",?\s*',L):
                i=L.find('"'+a+'"'); ps.add((f,l,i+1))
            else: strs.append((f,l))
    if miss: print('UNPLACED',fn,a,miss[:3])
    if not ps: print('NO POS',fn,a)
    pos[fn,a]=ps; 
    members_out.append(dict(a=a,new=new,pos=sorted(ps)))
    final.append((fn,a,new,ps,strs))
# union by (a,new)
cover=collections.defaultdict(set)
for (fn,a),ps in pos.items(): cover[a,want[fn,a]]|=ps
rows=[]
for fn,a,new,ps,strs in final:
    m,c=fn.rsplit('.',1)
    # module of class
    e={"old":f"{m}:{c}.{a}","new":new}
    if occ[a]==len(cover[a,new]) and len({n for (f2,a2),n in want.items() if a2==a})==1: e['safe']=True
    else:
        e['safe']=False; e['where']=[f'{f}:{l}:{c2}' for f,l,c2 in sorted(ps)]
        docs=sorted(x for x in occf[a] if x.startswith(('docs','README')))
    if strs: e['strings']=[f'{f}:{l}' for f,l in strs]
    rows.append(e)

strings=collections.defaultdict(list)
for top in ('src','tests','bench','tools','examples'):
  for p in (ROOT/top).rglob('*.py'):
    t=ast.parse(p.read_text()); al={}
    for x in ast.walk(t):
        if isinstance(x,ast.ImportFrom) and x.module:
            for a in x.names: al[a.asname or a.name]=f'{x.module}.{a.name}'
    for x in ast.walk(t):
        if isinstance(x,ast.Call) and ast.unparse(x.func).split('.')[-1] in ('setattr','getattr','delattr','hasattr'):
            for k,a in enumerate(x.args):
                if isinstance(a,ast.Constant) and isinstance(a.value,str):
                    loc=f'{p.relative_to(ROOT)}:{a.lineno}'
                    if a.value.startswith('detent.'): strings[a.value.rpartition('.')[0]+':'+a.value.rpartition('.')[2]].append(loc)
                    elif k==1 and isinstance(x.args[0],ast.Name) and x.args[0].id in al:
                        q=al[x.args[0].id]
                        strings[f'{q}:{a.value}'].append(loc)
                        strings[f"{q.rpartition('.')[0]}:{q.rpartition('.')[2]}.{a.value}"].append(loc)
        elif isinstance(x,ast.Constant) and isinstance(x.value,str) and 'detent.' in x.value:
            for w in re.findall(r'from (detent[\w.]+) import ([\w, ]+)',x.value):
                for nm in w[1].split(','): strings[f'{w[0]}:{nm.strip()}'].append(f'{p.relative_to(ROOT)}:{x.lineno}')
for e in result+rows:
    k=e.get('old') or e.get('collision')
    if strings.get(k): e['strings']=sorted(set(e.get('strings',[])+strings[k]))
json.dump(members_out,open('/tmp/rn/members.json','w'))
about={"about":f"Positions in 'where' (path:line:col, col from 0) are those of main at {HEAD}, found by mypy types; anew: cd /work/main; .venv/bin/python /tmp/refs/refs.py /tmp/refs/out2.json; python3 /tmp/rn/emit.py; __slots__ entries are in them. 'strings' are other literals in the class body that equal the name. Apply members at today's place, before merging. A swap is in it: executors.api:Run -> Invocation and running:Flight -> Run (with Flight.run -> invocation), so apply all at once. /tmp/rn/apply.py TREE applies this whole table to a tree (proved by mypy on a copy)."}
allrows=[about]+result+rows
json.dump(allrows,open('/work/tables/runtime.rename.json','w'),indent=0,ensure_ascii=False)
print('rows',len(result),len(rows),'safe',sum(r.get('safe',False) for r in rows))
un=[(n,u) for n,us in unknown.items() if n in names for u in us if not u[3].startswith('@')]
print('unknown receivers',len(un)); print(sorted({(n,u[0]) for n,u in un})[:80])
