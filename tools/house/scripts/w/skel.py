import ast,sys,pathlib
R=pathlib.Path('/work/main/src')
def sig(n,ind=''):
    d=ast.get_docstring(n)
    if isinstance(n,ast.ClassDef):
        print(f"{ind}class {n.name}({', '.join(ast.unparse(b) for b in n.bases)}):  # {d!r}")
        for m in n.body:
            if isinstance(m,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): sig(m,ind+'  ')
            elif isinstance(m,ast.AnnAssign): print(f"{ind}  {ast.unparse(m)[:90]}")
            elif isinstance(m,ast.Assign): print(f"{ind}  {ast.unparse(m)[:90]}")
    else:
        a='async ' if isinstance(n,ast.AsyncFunctionDef) else ''
        r=f"->{ast.unparse(n.returns)}" if n.returns else ''
        print(f"{ind}{a}def {n.name}({ast.unparse(n.args)}){r}:  # {d!r}")
for p in sys.argv[1:]:
    for f in sorted((R/p).rglob('*.py')) if (R/p).is_dir() else [R/p]:
        t=ast.parse(f.read_text())
        print(f"\n######## {f.relative_to(R)} {len(f.read_text().splitlines())}\n\"\"\"{ast.get_docstring(t)}\"\"\"")
        for n in t.body:
            if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): sig(n)
            elif isinstance(n,(ast.Assign,ast.AnnAssign)): print(ast.unparse(n)[:140])
            elif isinstance(n,ast.If): print("IF",ast.unparse(n.test))
