#!/usr/bin/env bash
# The gateway beside nginx + limit_req, in alternating pairs of one run.
#   bench/gateway/run.sh [pairs] [seconds]        needs nginx and wrk (apt-get install nginx-light wrk)
# Server on cpu 0; generator and origin on cpu 1; 64 keep-alive connections.
set -euo pipefail
cd "$(dirname "$0")"
pairs=${1:-10}; secs=${2:-3}
bin=${TIDEGATE:-../../target/release/tidegate}
dir=$(mktemp -d); pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
sed "s#DIR#$dir#g" origin.conf > "$dir/origin.conf"; sed "s#DIR#$dir#g" peer.conf > "$dir/peer.conf"
taskset -c 1 nginx -c "$dir/origin.conf" -g 'daemon off;' & pids+=($!)
taskset -c 0 nginx -c "$dir/peer.conf" -g 'daemon off;' & pids+=($!)
TIDEGATE_LOG_LEVEL=error TIDEGATE_WORKERS=1 taskset -c 0 "$bin" gateway --upstream http://127.0.0.1:9700 --rules rules.yaml \
  --listen 127.0.0.1:9702 --admin 127.0.0.1:9703 --store "sqlite:$dir/tidegate.db" 2> "$dir/tidegate.log" & gw=$!; pids+=($gw)
for port in 9700 9701 9702; do
  for _ in $(seq 200); do (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && break; sleep 0.05; done
done
load() { # url [script]
  taskset -c 1 wrk -t1 -c64 -d"${secs}s" -H 'x-user-id: alice' ${2:+-s "$2"} "$1" | awk '/Requests\/sec/ {print $2}'
}
pair() { # name ours peer
  for _ in $(seq "$pairs"); do
    a=$(load "$2"); b=$(load "$3"); echo "$1 $a $b" | awk '{printf "%s ours %.0f peer %.0f ratio %.3f\n", $1, $2, $3, $2/$3}'
  done | tee -a "$dir/out" | sort -t' ' -k7 -n | awk -v n="$pairs" '{r[NR]=$7; o[NR]=$3; p[NR]=$5; name=$1}
    END {printf "%s: ratio median %.3f [%.3f–%.3f], %d pairs\n", name, r[int((NR+1)/2)], r[1], r[NR], n}'
}
load http://127.0.0.1:9702/accounts/7 > /dev/null; load http://127.0.0.1:9701/accounts/7 > /dev/null   # warm
pair allow  http://127.0.0.1:9702/accounts/7 http://127.0.0.1:9701/accounts/7
pair denied http://127.0.0.1:9702/denied/7   http://127.0.0.1:9701/denied/7
for _ in $(seq 3); do
  a=$(FRESH=1 load http://127.0.0.1:9702/ pay.lua); b=$(taskset -c 0 python3 byhand.py "$dir/byhand.db" "$secs")
  echo "$a $b" | awk '{printf "first-call ours %.0f by hand on one connection %.0f ratio %.2f\n", $1, $2, $1/$2}'
done
for _ in $(seq 3); do echo "replay $(FRESH=0 load http://127.0.0.1:9702/ pay.lua)/s"; done
