#!/usr/bin/env bash
# The gateway beside nginx + limit_req, and beside its own SQL statements sent by hand, in alternating pairs of one run.
#   bench/gateway/run.sh [pairs] [seconds]        needs nginx and wrk (apt-get install nginx-light wrk)
# Server (or statements by hand) on cpu 0; generator and origin on cpu 1; 64 connections.
set -euo pipefail
cd "$(dirname "$0")"
pairs=${1:-10}; secs=${2:-3}
bin=${TIDEGATE:-../../target/release/tidegate}
byhand=${BYHAND:-../target/release/byhand}
[ -x "$byhand" ] || cargo build --release --manifest-path ../Cargo.toml --target-dir ../target -p byhand
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
pair() { # name, the command for ours, the command for the peer; each prints a rate first
  for _ in $(seq "$pairs"); do
    read -r a _ <<< "$($2)"; read -r b rest <<< "$($3)"
    echo "$1 $a $b $rest" | awk '{printf "%s ours %.0f peer %.0f ratio %.3f %s %s\n", $1, $2, $3, $2/$3, $4, $5}'
  done | tee -a "$dir/out" | tee -a /dev/stderr | sort -t' ' -k7 -n | awk -v n="$pairs" '{r[NR]=$7; name=$1}
    END {printf "%s: ratio median %.3f [%.3f–%.3f], %d pairs\n", name, r[int((NR+1)/2)], r[1], r[NR], n}'
}
get() { load "http://127.0.0.1:$1"; }
pay() { FRESH=$1 load http://127.0.0.1:9702/ pay.lua; }
hand() { taskset -c 0 "$byhand" "$1" "$dir/byhand.db" "$secs" "$2"; } # rate, longest wait in ms, busy timeouts
get 9702/accounts/7 > /dev/null; get 9701/accounts/7 > /dev/null; pay 0 > /dev/null   # warm
pair allow "get 9702/accounts/7" "get 9701/accounts/7"
pair denied "get 9702/denied/7" "get 9701/denied/7"
pair first-call-beside-64-by-hand "pay 1" "hand first 64"
pair first-call-beside-1-by-hand "pay 1" "hand first 1"
pair replay-beside-64-by-hand "pay 0" "hand replay 64"
