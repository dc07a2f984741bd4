import json,re,pathlib,sys
from collections import defaultdict
root=pathlib.Path(sys.argv[1])
by=defaultdict(list); words=[]
for e in json.load(open("/work/tables/stores.rename.json")):
    if "old" not in e: continue
    m,_,n=e["old"].partition(":")
    if "." not in n: continue
    o=n.split(".")[1]
    if e["safe"]: words.append((o,e["new"]))
    else:
        for w in e["where"]:
            p,l,c=w.rsplit(":",2); by[p].append((int(l),int(c),o,e["new"]))
miss=0
for p,xs in by.items():
    f=root/p; L=f.read_text().split("\n")
    for l,c,o,n in sorted(set(xs),reverse=True):
        s=L[l-1]
        if s[c:c+len(o)]!=o: print("MISS",p,l,c,o); miss+=1; continue
        L[l-1]=s[:c]+n+s[c+len(o):]
    f.write_text("\n".join(L))
W=dict(words); pat=re.compile(r"\b("+"|".join(map(re.escape,W))+r")\b")
for d in("src","tests","bench","tools","examples","docs"):
    for f in (root/d).rglob("*"):
        if f.suffix in(".py",".md") and "snapshots" not in f.parts:
            t=f.read_text(); u=pat.sub(lambda m:W[m[1]],t)
            if u!=t: f.write_text(u)
print("applied",miss,"misses")
