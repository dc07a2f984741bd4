import ast,json,pathlib,re,sys,builtins,subprocess
from collections import defaultdict
R=pathlib.Path('/tmp/w/snap/src'); 
mods={}
for f in R.rglob('*.py'):
    m='.'.join(f.relative_to(R).with_suffix('').parts); mods[m[:-9] if m.endswith('.__init__') else m]=f
trees={m:ast.parse(f.read_text()) for m,f in mods.items()}
def toplevel(t):
    out={}
    def walk(b):
        for n in b:
            if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): out[n.name]=n
            elif isinstance(n,ast.Assign):
                for x in n.targets:
                    for y in ([x] if isinstance(x,ast.Name) else x.elts if isinstance(x,ast.Tuple) else []):
                        if isinstance(y,ast.Name): out[y.id]=n
            elif isinstance(n,ast.AnnAssign) and isinstance(n.target,ast.Name): out[n.target.id]=n
            elif isinstance(n,ast.If): walk(n.body); walk(n.orelse)
            elif isinstance(n,(ast.Try,ast.With)): walk(n.body)
    walk(t.body); return out
def members(c):
    out=set()
    for n in c.body:
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)): out.add(n.name)
        elif isinstance(n,ast.AnnAssign) and isinstance(n.target,ast.Name): out.add(n.target.id)
        elif isinstance(n,ast.Assign):
            for x in n.targets:
                for y in ([x] if isinstance(x,ast.Name) else x.elts if isinstance(x,ast.Tuple) else []): out.add(y.id) if isinstance(y,ast.Name) else None
    for m in ast.walk(c):
        if isinstance(m,ast.Attribute) and isinstance(m.ctx,ast.Store) and isinstance(m.value,ast.Name) and m.value.id=='self': out.add(m.attr)
    return out
TOP={m:toplevel(t) for m,t in trees.items()}
ren=[];mem=[]
err=0
for p in ('r_engine','r_app','r_cli','r_twins'):
    mod=None
    for l in open(f'/tmp/w/{p}.txt'):
        l=l.strip()
        if not l: continue
        if l.startswith('@'):
            mod='detent.'+l[1:]
            if mod not in mods: print('NO MODULE',mod); err+=1
            continue
        a=l.split(' : '); w=a[0].split()
        if len(w)!=2: print('BAD',mod,l); continue
        old,new=w
        if mod not in TOP or old not in TOP[mod]: print('NO NAME',mod,old); err+=1; continue
        if old!=new: ren.append((mod,old,new))
        if len(a)>1:
            c=TOP[mod][old]
            if not isinstance(c,ast.ClassDef): print('NOT CLASS',mod,old); continue
            ms=members(c)
            for x in a[1].split():
                o,n=x.split('>')
                if o not in ms: print('NO MEMBER',mod,old,o, sorted(ms) if len(ms)<30 else ''); err+=1; continue
                if n in ms and not any(x.startswith(n+'>') for x in a[1].split()): print('MEMBER CLASH',mod,old,o,'>',n)
                mem.append((mod,old,o,n))
d={}
for m,o,n in ren:
    if (m,o) in d: print('DOUBLE',m,o)
    d[m,o]=n
# collisions in targets
table=json.load(open('/work/tables/engine.merge.json'))
for t,e in table.items():
    names=defaultdict(set)
    for m in e['from']:
        for n in TOP.get(m,{}):
            if n in('_log','R','R_co','J','T','F','A','B','P','Q','K','V','M'): continue
            names[d.get((m,n),n)].add((m,n,ast.unparse(TOP[m][n]) if not isinstance(TOP[m][n],(ast.Assign,ast.AnnAssign)) or True else ''))
        # imports
        for n in ast.walk(trees[m]) if m in trees else []:
            if isinstance(n,ast.ImportFrom) and n.module:
                for a in n.names:
                    mm=n.module; nn=a.asname or a.name
                    if a.asname is None and (mm,a.name) in d: nn=d[mm,a.name]
                    if mm in e['from'] and a.asname is None: continue
                    names[nn].add(('import',mm if (mm,a.name) not in d else mm,a.name))
            elif isinstance(n,ast.Import):
                for a in n.names: names[(a.asname or a.name).split('.')[0]].add(('import',a.name,''))
    for n,s in names.items():
        kinds={(x[0],x[1],x[2]) for x in s}
        defs={x for x in s if x[0]!='import'}; imps={x for x in s if x[0]=='import'}
        if len({x[2] for x in defs})>1 or (defs and imps) : print('COLL',t,n,[(x[0],x[1]) for x in s])
        if not defs and len({(x[1].rsplit('.',1)[0] if 0 else x[1],x[2]) for x in imps})>1 and len({x[2] for x in imps})>1: print('COLL-IMP',t,n,[(x[1],x[2]) for x in s])
        if defs and hasattr(builtins,n): print('BUILTIN',t,n)
# new names colliding with imports elsewhere: a module that imports renamed name while defining/importing the new one
for m,t in trees.items():
    own=set(TOP[m]); imp={}
    for n in ast.walk(t):
        if isinstance(n,ast.ImportFrom) and n.module:
            for a in n.names: imp[a.asname or a.name]=(n.module,a.name,a.asname)
    for nm,(mm,o,asn) in imp.items():
        if (mm,o) in d and asn is None:
            new=d[mm,o]
            if new in own and (m,new) not in d and not any(e for e in table.values() if m in e['from'] and mm in e['from']): print('IMPORTER',m,'imports',mm,o,'->',new,'which it defines')
            if new in imp and imp[new][:2] not in d and imp[new][0]!=mm: print('IMPORTER2',m,'imports',mm,o,'->',new,'and has an import of it',imp[new])
            # locals of that name
            for f in ast.walk(t):
                if isinstance(f,(ast.FunctionDef,ast.AsyncFunctionDef)):
                    loc={x.arg for x in f.args.args+f.args.kwonlyargs+f.args.posonlyargs}|{x.id for x in ast.walk(f) if isinstance(x,ast.Name) and isinstance(x.ctx,ast.Store)}
                    if new in loc and any(isinstance(x,ast.Name) and x.id==nm and isinstance(x.ctx,ast.Load) for x in ast.walk(f)): print('LOCAL',m,f.name,':',nm,'->',new)
    for (mm,o),new in d.items():
        if mm!=m: continue
        for f in ast.walk(t):
            if isinstance(f,(ast.FunctionDef,ast.AsyncFunctionDef)):
                loc={x.arg for x in f.args.args+f.args.kwonlyargs+f.args.posonlyargs}|{x.id for x in ast.walk(f) if isinstance(x,ast.Name) and isinstance(x.ctx,ast.Store)}
                if new in loc and any(isinstance(x,ast.Name) and x.id==o and isinstance(x.ctx,ast.Load) for x in ast.walk(f)): print('LOCAL',m,f.name,':',o,'->',new)
print(len(ren),'names',len(mem),'members',err,'errors')
R2=set((m,c,o) for m,c,o,n in mem)
classes={}
for m,t in trees.items():
    for n in ast.walk(t):
        if isinstance(n,ast.ClassDef): classes[m,n.name]=n
if 'twins' in sys.argv:
    prot={(m,c):members(n) for (m,c),n in classes.items() if any('Protocol' in ast.unparse(b) for b in n.bases)}
    byname=defaultdict(list)
    for m,c,o,n in mem: byname[o].append((m,c,n))
    for (m,c),ms in prot.items():
        hit=[o for o in ms if o in byname and (m,c,o) not in R2]
        if hit: print('PROTOCOL',m,c,[(h,byname[h]) for h in hit])
    # full structural: classes which have all public members of a class's protocol
