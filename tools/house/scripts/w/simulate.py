import json,pathlib,shutil,re,tokenize,io
from collections import defaultdict
S=pathlib.Path('/tmp/w/snap');T=pathlib.Path('/tmp/w/sim')
shutil.rmtree(T,ignore_errors=True); shutil.copytree(S,T)
d=json.load(open('/work/tables/engine.rename.json'))
edits=defaultdict(dict)
toks={}
def tk(p):
    if p not in toks:
        toks[p]=[k for k in tokenize.generate_tokens(io.StringIO((S/p).read_text()).readline) if k.type==tokenize.NAME]
    return toks[p]
allfiles=[str(f.relative_to(S)) for x in('src','tests','bench','tools','examples') for f in (S/x).rglob('*.py')]
for e in d:
    if 'variable' in e: old=e['variable']
    elif 'safe' in e: old=e['old'].split('.')[-1].split(':')[-1]
    else: continue
    new=e['new']
    def put(p,l,c):
        k=edits[p].get((l,c))
        if k and k!=(old,new): print('CONFLICT',p,l,c,k,old,new)
        edits[p][l,c]=(old,new)
    for p in (allfiles if e.get('safe') else e.get('where',[])):
        for k in tk(p):
            if k.string==old: put(p,*k.start)
    for a in e.get('at',[]):
        p,l,c=a.rsplit(':',2); put(p,int(l),int(c))
    for a in e.get('slots',[]):
        p,l,c=a.rsplit(':',2); put(p,int(l),int(c))
for p,es in edits.items():
    L=(S/p).read_text().split('\n')
    for (l,c),(o,n) in sorted(es.items(),reverse=True):
        t=L[l-1]
        if t[c:c+len(o)]!=o: print('MISMATCH',p,l,c,o,t[c:c+20]); continue
        L[l-1]=t[:c]+n+t[c+len(o):]
    (T/p).write_text('\n'.join(L))
print(sum(map(len,edits.values())),'edits')
