import ast,sys,pathlib
def doc(n):
    d=ast.get_docstring(n); return (d.split("\n")[0] if d else "")
for f in sys.argv[1:]:
    t=ast.parse(pathlib.Path(f).read_text())
    print("#####",f); print('"""'+(ast.get_docstring(t) or "")+'"""')
    for n in t.body:
        if isinstance(n,(ast.Import,)): continue
        if isinstance(n,ast.ImportFrom):
            if n.module and n.module.startswith("detent"): print("from",n.module,"import",", ".join(a.name for a in n.names))
            continue
        if isinstance(n,ast.If): print(ast.unparse(n)[:300]); continue
        if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef)):
            print("def",n.name,"("+ast.unparse(n.args)+")",":",doc(n))
        elif isinstance(n,ast.ClassDef):
            print("class",n.name,"("+",".join(map(ast.unparse,n.bases))+")",":",ast.get_docstring(n))
            for m in n.body:
                if isinstance(m,(ast.FunctionDef,ast.AsyncFunctionDef)): print("    def",m.name,"("+ast.unparse(m.args)+")",":",doc(m))
                elif isinstance(m,ast.AnnAssign): print("   ",ast.unparse(m)[:120])
        elif isinstance(n,(ast.Assign,ast.AnnAssign)): print(ast.unparse(n)[:160])
        elif isinstance(n,ast.Expr) and isinstance(n.value,ast.Constant): print("   ''",n.value.value)
        else: print(ast.unparse(n)[:100])
