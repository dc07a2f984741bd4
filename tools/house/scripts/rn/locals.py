"""new top-level names that a function binds locally while it uses the renamed global"""
import ast, json, pathlib, builtins
ROOT=pathlib.Path('/work/main')
R=json.load(open('/work/tables/runtime.rename.json'))
ren={}
for e in R:
    k=e.get('old') or e.get('collision')
    m,n=k.split(':')
    if '.' not in n: ren[m,n]=e['new']
bad=[]
for top in ('src','tests','bench','tools','examples'):
  for p in (ROOT/top).rglob('*.py'):
    rel=p.relative_to(ROOT/'src') if top=='src' else p.relative_to(ROOT)
    m='.'.join(rel.with_suffix('').parts).removesuffix('.__init__')
    t=ast.parse(p.read_text())
    g={}
    for (mm,n),new in ren.items():
        if mm==m: g[n]=new
    for x in ast.walk(t):
        if isinstance(x,ast.ImportFrom):
            for a in x.names:
                if (x.module,a.name) in ren and not a.asname: g[a.name]=ren[x.module,a.name]
    if not g: continue
    def scan(fn, outer):
        loc=set()
        for a in fn.args.args+fn.args.posonlyargs+fn.args.kwonlyargs+[x for x in (fn.args.vararg,fn.args.kwarg) if x]: loc.add(a.arg)
        used=set()
        nested=[]
        def w(n):
            for c in ast.iter_child_nodes(n):
                if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef)): loc.add(c.name); nested.append(c); 
                elif isinstance(c,ast.Lambda): nested.append(c); 
                else:
                    if isinstance(c,ast.Name):
                        (loc if isinstance(c.ctx,(ast.Store,ast.Del)) else used).add(c.id)
                    elif isinstance(c,ast.MatchAs) and c.name: loc.add(c.name)
                    elif isinstance(c,ast.ExceptHandler) and c.name: loc.add(c.name)
                    w(c)
        body=fn.body if isinstance(fn.body,list) else [fn.body]
        for b in body:
            if isinstance(b,(ast.FunctionDef,ast.AsyncFunctionDef)): loc.add(b.name); nested.append(b)
            else:
                if isinstance(b,ast.Name): used.add(b.id)
                w(b)
        scope=outer|loc
        for u in used:
            if u in g and u not in scope and g[u] in scope: bad.append(f'{p.relative_to(ROOT)}:{fn.lineno} uses {u}->{g[u]}, which is a local there')
            if u in g and u in loc: bad.append(f'{p.relative_to(ROOT)}:{fn.lineno} local shadows global {u} (codemod must not touch)') if False else None
        for k in nested: scan(k, scope)
    def top_(body):
        for n in body:
            if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)): scan(n,set())
            elif isinstance(n,ast.ClassDef): top_(n.body)
            elif isinstance(n,(ast.If,ast.Try,ast.With,ast.For)): top_(n.body)
    top_(t.body)
print('\n'.join(sorted(set(x for x in bad if x))))
for (m,n),new in ren.items():
    if hasattr(builtins,new): print('builtin',m,n,new)
