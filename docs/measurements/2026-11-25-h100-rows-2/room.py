import json,re,collections,statistics as st,sys
tasks={json.loads(l)['name']:json.loads(l) for l in open('configs/rows.jsonl')}
best=collections.defaultdict(list); fl={}
c=collections.Counter()
for l in open(sys.argv[1]):
    v=json.loads(l)['verdict']; c[v['verified'], (v.get('failure') or {}).get('class')]+=1
    if not v['verified']: continue
    s=v['speedup']['best']; best[v['task']].append((s['value'],s['low']))
    t=v['times_ms']; 
    t={n:t[n]['value'] for n in ("candidate","eager","compile","reduce_overhead","max_autotune") if t.get(n)}
    fl[v['task']]=min(t[n] for n in t if n!='candidate')/v['floor_ms'], t
print(c)
by=collections.defaultdict(list)
for t,b in sorted(best.items()):
    code=tasks[t]['code']; s=re.findall(r"^([A-Z_]+) = (\d+)$",code,re.M)[:2]; sh=s[0][1]+'x'+s[1][1]
    m=max(b); by[sh].append(m[0]); print(f"{t[:46]:46} {sh} {m[0]:.2f} low {m[1]:.2f} room {fl[t][0]:.2f} n={len(b)} "+' '.join(f'{k[:4]} {x:.4f}' for k,x in fl[t][1].items()))
for k,v in by.items(): print(k,len(v),st.median(v),sum(x>1.1 for x in v))
