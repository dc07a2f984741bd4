"""Positions of top-level names by AST and of members by mypy; applies both to a tree (argv[1]) to prove the table."""
import ast, json, pathlib, collections, sys, re
TREE=pathlib.Path(sys.argv[1])
R=[x for x in json.load(open('/work/tables/runtime.rename.json')) if 'about' not in x]
ren={}
for e in R:
    k=e.get('old') or e.get('collision'); m,n=k.split(':')
    if '.' not in n: ren[m,n]=e['new']
edits=collections.defaultdict(dict)  # file -> (line,col) -> (old,new)
def add(p,line,col,old,new):
    edits[p][line,col]=(old,new)
mods={}
files=[]
for top in ('src','tests','bench','tools','examples'):
  for p in (TREE/top).rglob('*.py'):
    rel=p.relative_to(TREE/'src') if top=='src' else p.relative_to(TREE)
    m='.'.join(rel.with_suffix('').parts).removesuffix('.__init__')
    files.append((p,m)); mods[m]=p
renmods={m for m,_ in ren}
for p,m in files:
    text=p.read_text(); lines=text.splitlines(); t=ast.parse(text)
    g={n:new for (mm,n),new in ren.items() if mm==m}
    modalias={}
    local_imports=collections.defaultdict(dict)
    def b2c(line,boff): return len(lines[line-1].encode()[:boff].decode())
    for x in ast.walk(t):
        if isinstance(x,ast.ImportFrom) and x.module:
            for a in x.names:
                if (x.module,a.name) in ren:
                    add(p,a.lineno,b2c(a.lineno,a.col_offset),a.name,ren[x.module,a.name])
                    if not a.asname: g[a.name]=ren[x.module,a.name]
                if f'{x.module}.{a.name}' in renmods: modalias[a.asname or a.name]=f'{x.module}.{a.name}'
    if not g and not modalias: continue
    # module-level defs
    for n in ast.walk(t):
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): n._parent=None
    for n in t.body:
        st=[n]
        while st:
            n=st.pop()
            if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)) and (m,n.name) in ren:
                l=n.lineno; c=re.search(r'\b(?:def|class)\s+'+re.escape(n.name)+r'\b',lines[l-1])
                add(p,l,c.end()-len(n.name),n.name,ren[m,n.name])
            elif isinstance(n,(ast.If,ast.Try)): st+=n.body+n.orelse+[y for h in getattr(n,'handlers',[]) for y in h.body]
    def bind(fn):
        loc=set(); glob=set()
        a=fn.args
        for x in a.args+a.posonlyargs+a.kwonlyargs+[y for y in (a.vararg,a.kwarg) if y]: loc.add(x.arg)
        def w(n):
            for c in ast.iter_child_nodes(n):
                if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): loc.add(c.name); continue
                if isinstance(c,ast.Lambda): continue
                if isinstance(c,(ast.ListComp,ast.SetComp,ast.DictComp,ast.GeneratorExp)): pass
                if isinstance(c,ast.Name) and isinstance(c.ctx,(ast.Store,ast.Del)): loc.add(c.id)
                elif isinstance(c,ast.MatchAs) and c.name: loc.add(c.name)
                elif isinstance(c,ast.ExceptHandler) and c.name: loc.add(c.name)
                elif isinstance(c,(ast.Import,ast.ImportFrom)):
                    for al in c.names: pass
                elif isinstance(c,ast.Global): glob.update(c.names)
                w(c)
        if isinstance(fn,ast.Lambda): w(ast.Expr(fn.body))
        else:
            for b in fn.body: w(ast.Module([b],[]))
        return loc-glob
    def go(n,scope):
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.Lambda)):
            inner=scope|bind(n)
            # names of args whose annotation, decorators, defaults are outer
            for c in ast.iter_child_nodes(n):
                if c is n.args or c in getattr(n,'decorator_list',[]) or c is getattr(n,'returns',None): go(c,scope)
                else: go(c,inner)
            return
        if isinstance(n,ast.ClassDef):
            bound={y.id for b in n.body for y in (([b.target] if isinstance(b,ast.AnnAssign) else b.targets) if isinstance(b,(ast.AnnAssign,ast.Assign)) else []) if isinstance(y,ast.Name)}
            for c in ast.iter_child_nodes(n):
                go(c, scope if isinstance(c,(ast.FunctionDef,ast.AsyncFunctionDef)) or c not in n.body else scope|bound)
            return
        if isinstance(n,ast.Name):
            if n.id in g and n.id not in scope:
                add(p,n.lineno,b2c(n.lineno,n.col_offset),n.id,g[n.id])
                if g[n.id] in scope: print('SHADOW',p,n.lineno,n.id,g[n.id])
        elif isinstance(n,ast.Attribute) and isinstance(n.value,ast.Name) and n.value.id in modalias and n.value.id not in scope:
            k=(modalias[n.value.id],n.attr)
            if k in ren: add(p,n.end_lineno,b2c(n.end_lineno,n.end_col_offset)-len(n.attr),n.attr,ren[k])
        elif isinstance(n,ast.Constant) and isinstance(n.value,str):
            # quoted types
            for w in re.finditer(r'[A-Za-z_]\w*',n.value):
                if w[0] in g and n.lineno==n.end_lineno and re.fullmatch(r'[\w\[\], .|]+',n.value) and w[0][0].isupper():
                    c=lines[n.lineno-1].find(n.value,b2c(n.lineno,n.col_offset))
                    if c>=0 and quoted(n): add(p,n.lineno,c+w.start(),w[0],g[w[0]])
        for c in ast.iter_child_nodes(n): go(c,scope)
    parents={}
    for x in ast.walk(t):
        for c in ast.iter_child_nodes(x): parents[c]=x
    def quoted(n):
        q=parents.get(n)
        return (isinstance(q,ast.Call) and isinstance(q.func,ast.Name) and q.func.id in('cast','TypeVar')) or isinstance(q,(ast.Subscript,ast.List,ast.Tuple)) and not isinstance(parents.get(q),(ast.Assign,)) and False
    go(t,set())
members=json.load(open('/tmp/rn/members.json'))
for e in members:
    for f,l,c in e['pos']: add(TREE/f,l,c,e['a'],e['new'])
bad=0
for p,ed in edits.items():
    lines=p.read_text().splitlines(keepends=True)
    for (l,c),(old,new) in sorted(ed.items(),reverse=True):
        s=lines[l-1]
        if s[c:c+len(old)]!=old:
            print('MISS',p,l,c,old,repr(s[c:c+20])); bad+=1; continue
        lines[l-1]=s[:c]+new+s[c+len(old):]
    p.write_text(''.join(lines))
print('files',len(edits),'edits',sum(map(len,edits.values())),'missed',bad)
