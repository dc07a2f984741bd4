import ast,json,pathlib,re,pickle
from collections import defaultdict
exec(open("/tmp/c/members.py").read())
R=pathlib.Path("/work/main"); SRC=R/"src"
files={}
for f in SRC.rglob("*.py"):
    m=".".join(f.relative_to(SRC).with_suffix("").parts); files[m[:-9] if m.endswith(".__init__") else m]=f
pys=[f for d in("src","tests","bench","tools","examples","docs") for f in (R/d).rglob("*.py")]
others=[f for d in("src","tests","docs","bench","tools","examples") for f in (R/d).rglob("*") if f.is_file() and f.suffix in{".sql",".md",".js",".html",".yml",".json",".toml",".css",".lua"} and "node_modules" not in f.parts]
text={f:f.read_text(errors="ignore") for f in pys+others}
words=defaultdict(lambda: defaultdict(int))
ctx=defaultdict(lambda: defaultdict(lambda: defaultdict(int)))  # word->kind->file->count
wanted={o for _,o,_ in M}|{n for _,_,n in M}
for f in others:
    for w in re.findall(r"[A-Za-z_]\w*",text[f]):
        if w in wanted: ctx[w]["nonpy"][str(f.relative_to(R))]+=1
for f in pys:
    t=ast.parse(text[f]); rel=str(f.relative_to(R))
    class V(ast.NodeVisitor):
        cls=None
        def visit_ClassDef(s,n):
            if n.name in wanted: ctx[n.name]["class"][rel]+=1
            old=s.cls; s.cls=n.name; s.generic_visit(n); s.cls=old
        def fn(s,n):
            if n.name in wanted: ctx[n.name]["def in "+str(s.cls)][rel]+=1
            for a in [*n.args.posonlyargs,*n.args.args,*n.args.kwonlyargs]:
                if a.arg in wanted: ctx[a.arg]["arg"][rel]+=1
            old=s.cls; s.cls=None; s.generic_visit(n); s.cls=old
        visit_FunctionDef=visit_AsyncFunctionDef=fn
        def visit_AnnAssign(s,n):
            if isinstance(n.target,ast.Name) and n.target.id in wanted: ctx[n.target.id]["field in "+str(s.cls)][rel]+=1
            elif isinstance(n.target,ast.Name): pass
            s.generic_visit(n)
        def visit_Attribute(s,n):
            if n.attr in wanted: ctx[n.attr]["attr"][rel]+=1
            s.generic_visit(n)
        def visit_keyword(s,n):
            if n.arg in wanted: ctx[n.arg]["kw"][rel]+=1
            s.generic_visit(n)
        def visit_Name(s,n):
            if n.id in wanted: ctx[n.id]["name"][rel]+=1
        def visit_Constant(s,n):
            if isinstance(n.value,str):
                for w in set(re.findall(r"[A-Za-z_]\w*",n.value)):
                    if w in wanted: ctx[w]["str"][rel]+=1
        def visit_alias(s,n):
            for w in (n.name,n.asname):
                if w in wanted: ctx[w]["import"][rel]+=1
    V().visit(t)
if __name__=="__main__":
    for c,o,n in M:
        mod,cls=c.split(":")
        src=text[files[mod]]
        if not re.search(rf"\b{o}\b",src): print("MISSING",c,o)
        k=ctx[o]
        print(f"{cls}.{o} -> {n}: "+", ".join(f"{a}={sum(b.values())}" for a,b in sorted(k.items()))+ ("   || NEW EXISTS "+", ".join(f"{a}={sum(b.values())}" for a,b in sorted(ctx[n].items())) if ctx[n] else ""))
