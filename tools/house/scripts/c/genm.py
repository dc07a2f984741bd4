import pickle,json,re,ast,pathlib,sys,subprocess
from collections import defaultdict
exec(open("/tmp/c/members.py").read())
hits,unknown,defs,kws=pickle.load(open("/tmp/c/typed.pkl","rb"))
S="detent.stores."
STORE={S+"api.WriteStore",S+"api.ReadStore",S+"api.Store",S+"memory.reading.Reading",S+"memory.store.MemoryStore",S+"sqlite.store.SqliteStore",S+"postgres.store.PostgresStore",S+"alike.Alike",S+"api.Anywhere",S+"api.Near",S+"api.Glancing",S+"api.Holding",S+"api.SideBySide",S+"checks.Candid"}
R=pathlib.Path("/work/main")
cache={}
def lines(p):
    if p not in cache: cache[p]=(R/p).read_text().splitlines()
    return cache[p]
allwords=defaultdict(list)
def occ(old):
    out=[]
    for d in("src","tests","docs","bench","tools","examples"):
        for f in (R/d).rglob("*"):
            if f.is_file() and f.suffix in{".py",".md",".sql",".js",".html",".yml",".json",".toml",".css"} and "node_modules" not in f.parts and "__pycache__" not in f.parts:
                t=cache.setdefault("T"+str(f),f.read_text(errors="ignore"))
                for m in re.finditer(rf"\b{re.escape(old)}\b",t): out.append((str(f.relative_to(R)),t.count("\n",0,m.start())+1,m.start()-(t.rfind("\n",0,m.start())+1)))
    return out
out=[]
for c,o,n in M:
    full=c.replace(":",".")
    fam={full}
    if c.startswith(S+"api:") or full==S+"checks.Candid": fam=STORE
    if c==S+"checks:Check" : fam={full}
    H=[h for h in hits if h[0]==o and fam&set(h[4])]
    Dd=[d for d in defs if d[0]==o and fam&set(d[4])]
    U=[u for u in unknown if u[0]==o]
    KW=[k for k in kws if k[0]==o]
    pos={(h[1],h[2],h[3]) for h in H}|{(d[1],d[2],d[3]) for d in Dd if d[3] is not None}
    cls=c.split(":")[1]
    for k in KW:
        if re.split(r"[.\[]",k[4])[-1] == cls or k[4].endswith("."+cls): pos.add((k[1],k[2],k[3]))
    allocc=occ(o)
    bad=[p for p in pos if lines(p[0])[p[1]-1][p[2]:p[2]+len(o)]!=o]
    rest=[a for a in allocc if a not in pos]
    otherdefs=sorted({(d[1],d[2]) for d in defs if d[0]==o and not fam&set(d[4])})
    e={"old":c+"."+o,"new":n,"n":len(pos),"rest":len(rest),"unknown":len(U),"kw_left":[k for k in KW if (k[1],k[2],k[3]) not in pos],"bad":bad,"otherdefs":otherdefs,"restlist":rest,"pos":sorted(pos),"U":U}
    out.append(e)
pickle.dump(out,open("/tmp/c/genm.pkl","wb"))
for e in out:
    code_rest=[r for r in e["restlist"] if r[0].endswith(".py")]
    print(e["old"].replace("detent.",""),"->",e["new"],"pos",e["n"],"rest",e["rest"],"(py",len(code_rest),") unk",e["unknown"],"bad",len(e["bad"]),"kwleft",len(e["kw_left"]))

# ------------------------------------------------------------- final
DROP={"Fault.why","Context.gate","Stored.note","Claimed.lost","Claimed.seen","Unit.new","Unit.moves","Unit.flow","Move.lines","FlowMove.answer","Who.keeper","Death.crowded","Death.lapsed","WorkerRow.who","WorkerRow.death","WorkerRow.renews","Retention.letters","Check.live","Waited.set","Waited.get","Word.at","Pool.meet","ReadStore.feed","ReadStore.keys","ReadStore.instances","ReadStore.leases","ReadStore.workers","ReadStore.flows","WriteStore.prune","SideBySide.connections","Followed.flow","Plan.idle","_Life.about","ReadStore.weight"}
REPLACE={"Unit.puts","Unit.gates","Flow.tallies","Accepted.sweep","Move.taken_by","Due.swept"}
ALLKW={"Context.verdict"}
EXTRA={"WriteStore.note":["detent.runtime.office.Books","detent.runtime.remote.office.RemoteOffice","detent.runtime.remote.office._Books"],"WriteStore.bury":["detent.runtime.beating._Store","detent.runtime.remote.office.RemoteOffice"],"WriteStore.step":["tests.engine.test_wishes.Counting"]}
final=[]
taken={}
for e in out:
    nm=e["old"].split(":")[1]; old=nm.split(".")[1]
    if nm in DROP: continue
    pos=set(e["pos"])
    m_,c_=e["old"].split(":")[0],nm.split(".")[0]
    f_=pathlib.Path("/work/main/src",*m_.split(".")).with_suffix(".py")
    for n_ in ast.walk(ast.parse(f_.read_text())):
        if isinstance(n_,ast.ClassDef) and n_.name==c_:
            for b_ in n_.body:
                if isinstance(b_,ast.Assign) and getattr(b_.targets[0],"id","")=="__slots__":
                    for k_ in ast.walk(b_.value):
                        if isinstance(k_,ast.Constant) and k_.value==old: pos.add((str(f_.relative_to("/work/main")),k_.lineno,k_.col_offset+1))
    for k in e["kw_left"]:
        if nm in ALLKW or (nm in REPLACE and k[4].endswith("replace")): pos.add((k[1],k[2],k[3]))
    if nm in EXTRA:
        ex=set(EXTRA[nm])
        pos|={(h[1],h[2],h[3]) for h in hits if h[0]==old and ex&set(h[4])}|{(d[1],d[2],d[3]) for d in defs if d[0]==old and (ex&set(d[4]) or (nm=="WriteStore.bury" and d[1].startswith("tests/") and "beat" in d[1]))}
        if nm=="WriteStore.step": pos|={(d[1],d[2],d[3]) for d in defs if d[0]=="step" and d[1]=="tests/engine/test_wishes.py"}
    if ".api:" in e["old"]:
        pos|={(u[1],u[2],u[3]) for u in e["U"] if u[1]=="tests/contract/twins.py"}
    bad=[p for p in pos if lines(p[0])[p[1]-1][p[2]:p[2]+len(old)]!=old]
    assert not bad,(nm,bad)
    safe=not [r for r in e["restlist"] if r not in pos]
    for p in pos:
        if p in taken and taken[p]!=e["new"]: print("DOUBLE",p,taken[p],nm,e["new"])
        taken[p]=e["new"]
    d={"old":e["old"],"new":e["new"],"safe":safe}
    if not safe: d["where"]=[f"{a}:{b}:{c}" for a,b,c in sorted(pos)]
    final.append(d)
    # does the class already have the new name?
    mod,cls=e["old"].split(":")[0],nm.split(".")[0]
    src=pathlib.Path("/work/main/src",*mod.split(".")).with_suffix(".py").read_text()
    t=[n for n in ast.walk(ast.parse(src)) if isinstance(n,ast.ClassDef) and n.name==cls][0]
    body=ast.unparse(t)
    if re.search(rf"def {e['new']}\b|self\.{e['new']}\b|^    {e['new']}\b",body,re.M): print("HAS ALREADY",e["old"],e["new"])
json.dump(final,open("/tmp/c/members.json","w"))
print(len(final),"members",sum(1 for f in final if f["safe"]),"safe")
