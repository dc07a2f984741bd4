import sys,importlib,pathlib,subprocess
S=pathlib.Path("/tmp/c/copy/src"); bad=0
mods=[]
for f in S.joinpath("detent").rglob("*.py"):
    m=".".join(f.relative_to(S).with_suffix("").parts); m=m[:-9] if m.endswith(".__init__") else m
    if ".lifecycle" in m or ".stores" in m or m.endswith("errors"): mods.append(m)
for m in sorted(mods):
    r=subprocess.run([sys.executable,"-c",f"import sys; sys.path.insert(0,{str(S)!r}); import {m}; assert '/tmp/c/copy' in sys.modules['{m}'].__file__"],capture_output=True,text=True)
    if r.returncode: bad+=1; print(m, r.stderr.strip().splitlines()[-1])
print(len(mods),"modules",bad,"bad")
