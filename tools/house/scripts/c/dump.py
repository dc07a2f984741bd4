import sys,re,pathlib
out=[]
for f in sys.argv[2:]:
    t=pathlib.Path(f).read_text()
    out.append("##### "+f)
    for l in t.splitlines():
        if l.strip(): out.append(l)
pathlib.Path(sys.argv[1]).write_text("\n".join(out)+"\n")
print(sys.argv[1], sum(len(x)+1 for x in out))
