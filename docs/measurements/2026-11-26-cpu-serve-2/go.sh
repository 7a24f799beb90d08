cd /tmp/bs
export WARPWRIGHT_PYTHON=/work/main/.venv/bin/python
./warpwright bench serve --device cpu --stage verified --candidates 96 --rounds 4 --nats nats://127.0.0.1:4333 --out serve.json > serve.txt 2> serve.log
for n in 1 2; do
  ./warpwright serve --listen 127.0.0.1:8765 --no-device --nats nats://127.0.0.1:4333 --fleet two$n > s$n.log 2>&1 & S=$!
  W=""
  for c in $(seq 0 $((n-1))); do taskset -c $c ./warpwright worker --connect nats://127.0.0.1:4333 --fleet two$n --device cpu > w$n-$c.log 2>&1 & W="$W $!"; done
  for t in $(seq 100); do [ "$(curl -s http://127.0.0.1:8765/health | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["far"]))')" = $n ] && break; sleep 0.3; done
  PYTHONPATH=/work/main/clients/python/src python3 /work/main/scripts/load-serve http://127.0.0.1:8765 --requests 24 --stage verified > warm$n.json 2>&1
  PYTHONPATH=/work/main/clients/python/src python3 /work/main/scripts/load-serve http://127.0.0.1:8765 --requests 96 --stage verified > load$n.json 2>&1
  kill $W $S; wait $W $S
done
echo finished > done.txt
