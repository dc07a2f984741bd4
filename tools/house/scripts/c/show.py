import pickle
o=pickle.load(open("/tmp/c/genm.pkl","rb"))
for e in o:
    nm=e["old"].split(":")[1]
    if nm in("Context.gate","Context.verdict","Unit.puts","Unit.gates","Accepted.sweep","Flow.tallies","Retention.letters","Claimed.passed","Move.taken_by","Due.swept"):
        print("==",nm); 
        for k in e["kw_left"]: print("   ",k[1],k[2],k[4],"|",k[5][:40])
for e in o:
    if ".api:" in e["old"] or "Candid" in e["old"]:
        od=[x for x in e["otherdefs"]]
        print(e["old"].split(":")[1],"OTHERDEFS",od,"UNK",[(u[1],u[2]) for u in e["U"]][:6])
