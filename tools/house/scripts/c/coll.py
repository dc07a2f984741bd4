import ast,json,pathlib
ROOT=pathlib.Path("/work/main/src")
T=json.load(open("/work/tables/stores.merge.json"))
mods={}
for f in ROOT.rglob("*.py"):
    m=".".join(f.relative_to(ROOT).with_suffix("").parts); mods[m[:-9] if m.endswith(".__init__") else m]=f
tgt={m:t for t,e in T.items() for m in e["from"]}
def tops(body):
    for n in body:
        if isinstance(n,(ast.If,ast.Try)): yield from tops(n.body); 
        else: yield n
for t,e in T.items():
    if len(e["from"])<2: continue
    names={}
    for m in e["from"]:
        tree=ast.parse(mods[m].read_text())
        for n in tops(tree.body):
            if isinstance(n,ast.ImportFrom):
                for a in n.names:
                    sub=f"{n.module}.{a.name}"
                    o=("mod",sub) if sub in mods else ("name",n.module,a.name)
                    names.setdefault(a.asname or a.name,{}).setdefault(o,[]).append(m)
            elif isinstance(n,ast.Import):
                for a in n.names: names.setdefault(a.asname or a.name.split(".")[0],{}).setdefault(("mod",a.name),[]).append(m)
            else:
                ns=[]
                if isinstance(n,(ast.FunctionDef,ast.AsyncFunctionDef,ast.ClassDef)): ns=[n.name]
                elif isinstance(n,ast.Assign):
                    for x in n.targets:
                        ns+= [y.id for y in ast.walk(x) if isinstance(y,ast.Name)]
                elif isinstance(n,ast.AnnAssign): ns=[n.target.id]
                for x in ns: names.setdefault(x,{}).setdefault(("def",m,ast.unparse(n)),[]).append(m)
    for x,os in sorted(names.items()):
        kinds={}
        for o,ms in os.items():
            if o[0]=="name" and tgt.get(o[1])==t: continue   # internal import
            if o[0]=="mod" and tgt.get(o[1])==t: 
                print("INTERNAL MODULE ALIAS",t,x,o[1],ms); continue
            key = ("name",o[2]) if o[0]=="name" else ("def",o[2]) if o[0]=="def" else o
            kinds.setdefault(key,[]).extend(ms)
        if len(kinds)>1:
            print("CONFLICT",t,x,{(k[0],k[1][:60]):v for k,v in kinds.items()})
