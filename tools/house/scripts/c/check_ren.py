import ast,json,pathlib,sys,builtins,keyword
exec(open("/tmp/c/ren.py").read())
ROOT=pathlib.Path("/work/main"); SRC=ROOT/"src"
def modname(f):
    m=".".join(f.relative_to(SRC).with_suffix("").parts); return m[:-9] if m.endswith(".__init__") else m
files={modname(f):f for f in SRC.rglob("*.py")}
trees={m:ast.parse(f.read_text()) for m,f in files.items()}
def defs(body):
    for n in body:
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): yield n.name
        elif isinstance(n,ast.Assign):
            for t in n.targets:
                for x in ast.walk(t):
                    if isinstance(x,ast.Name): yield x.id
        elif isinstance(n,ast.AnnAssign) and isinstance(n.target,ast.Name): yield n.target.id
        elif isinstance(n,(ast.If,ast.Try)): 
            yield from defs(n.body); yield from defs(n.orelse)
D={m:set(defs(t.body)) for m,t in trees.items()}
ren={}
for m,o,n in R:
    if m not in D: print("NO MODULE",m); continue
    if o not in D[m]: print("NO NAME",m,o); continue
    if (m,o) in ren: print("TWICE",m,o)
    if hasattr(builtins,n) or keyword.iskeyword(n): print("BUILTIN",n)
    ren[m,o]=n
imp={}
for m,t in trees.items():
    f=imp[m]={}
    for n in ast.walk(t):
        if isinstance(n,ast.ImportFrom) and n.module:
            for a in n.names: f[a.asname or a.name]=(n.module,a.name)
def origin(m,n,d=0):
    if d<10 and m in D and n not in D[m] and n in imp[m]:
        u,x=imp[m][n]
        if u in files and f"{u}.{x}" not in files: return origin(u,x,d+1)
    return m,n
# other lanes' renames count too
T=json.load(open("/work/tables/stores.merge.json")); tgt={x:t for t,e in T.items() for x in e["from"]}
# new-name collisions inside merged targets
from collections import defaultdict
by=defaultdict(lambda: defaultdict(set))
for m in tgt:
    for n in D[m]: by[tgt[m]][ren.get((m,n),n)].add((m,n))
for t,ns in by.items():
    for n,ps in ns.items():
        if len(ps)>1:
            texts=set()
            for m,o in ps:
                for x in trees[m].body:
                    if o in set(defs([x])): texts.add(ast.unparse(x))
            if len(texts)>1 : print("TARGET COLLISION",t,n,ps)
# shadowing: for every file, names bound per function scope
allf=list(files.values())+[f for d in("tests","bench","tools","examples","docs") for f in (ROOT/d).rglob("*.py")]
rev={f:m for m,f in files.items()}
class Sc:
    def __init__(s,node,parent): s.node=node;s.parent=parent;s.bound=set();s.uses=[]
def scan(node,scope,out):
    for c in ast.iter_child_nodes(node):
        if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)):
            if not isinstance(c,ast.Lambda): scope.bound.add(c.name)
            s=Sc(c,scope); out.append(s)
            a=c.args
            for x in [*a.posonlyargs,*a.args,*a.kwonlyargs,*( [a.vararg] if a.vararg else []),*([a.kwarg] if a.kwarg else [])]: s.bound.add(x.arg)
            for dflt in [*a.defaults,*[k for k in a.kw_defaults if k]]: scan(ast.Expr(dflt),scope,out)
            for x in [*a.posonlyargs,*a.args,*a.kwonlyargs]:
                if x.annotation: scan(ast.Expr(x.annotation),scope,out)
            if not isinstance(c,ast.Lambda):
                if c.returns: scan(ast.Expr(c.returns),scope,out)
                for d in c.decorator_list: scan(ast.Expr(d),scope,out)
                for b in c.body: scan(ast.Module([b],[]),s,out)
            else: scan(ast.Expr(c.body),s,out)
        elif isinstance(c,ast.ClassDef):
            scope.bound.add(c.name)
            for d in [*c.bases,*c.decorator_list]: scan(ast.Expr(d),scope,out)
            s=Sc(c,scope); s.isclass=True; out.append(s)
            for b in c.body: scan(ast.Module([b],[]),s,out)
        elif isinstance(c,(ast.ListComp,ast.SetComp,ast.DictComp,ast.GeneratorExp)):
            s=Sc(c,scope); out.append(s); scan(c,s,out)
        elif isinstance(c,ast.Name):
            if isinstance(c.ctx,ast.Load): scope.uses.append(c)
            else: scope.bound.add(c.id)
        elif isinstance(c,(ast.Import,ast.ImportFrom)):
            for a in c.names: scope.bound.add((a.asname or a.name).split(".")[0])
        else:
            if isinstance(c,ast.ExceptHandler) and c.name: scope.bound.add(c.name)
            scan(c,scope,out)
bad=0
for f in allf:
    try: t=ast.parse(f.read_text())
    except Exception: continue
    me=rev.get(f)
    # local binding name -> new name
    loc={}
    for n in ast.walk(t):
        if isinstance(n,ast.ImportFrom) and n.module and n.module.startswith("detent"):
            for a in n.names:
                if a.asname: continue
                if f"{n.module}.{a.name}" in files and a.name not in D.get(n.module,()):
                    x=f"{n.module}.{a.name}"; nt=tgt.get(x,x).rpartition(".")[2]
                    if nt!=a.name: loc[a.name]=nt
                    continue
                o=origin(n.module,a.name)
                if o in ren: loc[a.name]=ren[o]
    if me:
        for (m,o),n in ren.items():
            if m==me: loc[o]=n
    if not loc: continue
    top=Sc(t,None); out=[top]; scan(t,top,out)
    for old,new in loc.items():
        if new in top.bound and new not in loc and not (me and new in {ren.get((me,x),x) for x in D[me]} and False):
            print("MODULE CLASH",f.relative_to(ROOT),old,"->",new); bad+=1
        for s in out:
            for u in s.uses:
                if u.id==old:
                    p=s; hit=None; shadowed=False; first=True
                    while p and p is not top:
                        if not getattr(p,"isclass",False) or first:
                            if old in p.bound: shadowed=True; break
                            if new in p.bound: hit=p
                        p=p.parent; first=False
                    if not shadowed and hit is not None:
                        print("SHADOW",f.relative_to(ROOT),u.lineno,old,"->",new); bad+=1
                        break
print(len(ren),"renames",bad,"issues")
