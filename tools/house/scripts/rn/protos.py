import ast, pathlib, collections
ROOT=pathlib.Path('/work/main')
def load():
    classes={}
    mods={}
    for top in ('src','tests','bench','tools','examples'):
        for p in (ROOT/top).rglob('*.py'):
            rel=p.relative_to(ROOT/'src') if top=='src' else p.relative_to(ROOT)
            m='.'.join(rel.with_suffix('').parts).removesuffix('.__init__')
            try: t=ast.parse(p.read_text())
            except Exception: continue
            imps={}
            for x in ast.walk(t):
                if isinstance(x,ast.ImportFrom) and x.module:
                    for a in x.names: imps[a.asname or a.name]=f'{x.module}.{a.name}'
                elif isinstance(x,ast.Import):
                    for a in x.names: imps[a.asname or a.name]=a.name
            def visit(body,prefix):
                for n in body:
                    if isinstance(n,ast.ClassDef):
                        fn=f'{prefix}.{n.name}'
                        bases=[]
                        for b in n.bases:
                            b=b.value if isinstance(b,ast.Subscript) else b
                            u=ast.unparse(b)
                            head=u.split('.')[0]
                            bases.append((imps[head]+u[len(head):]) if head in imps else f'{prefix}.{u}')
                        own={}
                        strs=collections.defaultdict(list)
                        for k in ast.walk(n):
                            if isinstance(k,(ast.FunctionDef,ast.AsyncFunctionDef)): own.setdefault(k.name,k.lineno)
                            elif isinstance(k,ast.AnnAssign):
                                if isinstance(k.target,ast.Name): own.setdefault(k.target.id,k.lineno)
                                elif isinstance(k.target,ast.Attribute) and isinstance(k.target.value,ast.Name) and k.target.value.id=='self': own.setdefault(k.target.attr,k.lineno)
                            elif isinstance(k,ast.Assign):
                                for y in k.targets:
                                    for z in ast.walk(y):
                                        if isinstance(z,ast.Attribute) and isinstance(z.value,ast.Name) and z.value.id=='self': own.setdefault(z.attr,k.lineno)
                                        elif isinstance(z,ast.Name): own.setdefault(z.id,k.lineno)
                            elif isinstance(k,ast.Constant) and isinstance(k.value,str): strs[k.value].append((str(p.relative_to(ROOT)),k.lineno,k.col_offset))
                        classes[fn]=dict(bases=bases,own=own,strs=strs,file=str(p.relative_to(ROOT)))
                        visit(n.body,fn)
                    elif isinstance(n,(ast.If,ast.Try,ast.FunctionDef,ast.AsyncFunctionDef,ast.With)): visit(n.body,prefix)
            visit(t.body,m)
    return classes
