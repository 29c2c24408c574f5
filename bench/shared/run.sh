#!/usr/bin/env bash
# Limits on one Redis: exact decisions beside a bare script and beside limitador, in one run.
#   FEATURES=limitador bench/shared/run.sh [repetitions] [milliseconds]        needs redis-server; the feature, libclang too
# Redis on cpu 1, the callers on cpu 0.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release -p shared --features "${FEATURES:-}"
dir=$(mktemp -d); port=${PORT:-17390}
taskset -c 1 redis-server --port "$port" --bind 127.0.0.1 --save '' --dir "$dir" > /dev/null & redis=$!
trap 'kill $redis 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$dir"' EXIT
for _ in $(seq 100); do (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break; sleep 0.05; done
taskset -c 0 target/release/shared "redis://127.0.0.1:$port" "$redis" "${1:-5}" "${2:-1000}"
