#!/bin/sh
# joint.sh GENERATOR [SECONDS]: how well partition.balance = "joint" uses the ranks with the schedule search: Llama-3 70B on 8 ranks with 5
# stages each, with fewer layers, with a slow rank, and Llama-3 405B on 16 ranks with 4 stages each. The limit of memory is that of the
# plan by time with the schedule interleaved, times 1.03, or as given. Utilisation as in the report; processor time of the generator.
set -eu
gen=$1 seconds=${2:-40}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/penstock-joint.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/70b.cfg" <<'END'
pipeline = { ranks = 8; stages_per_rank = 5; microbatches = 128; schedule = "interleaved"; };
model = { family = "llama"; layers = 80; hidden = 8192; heads = 64; kv_heads = 8; ffn = 28672; vocab = 128256; sequence = 8192; };
batch = { microbatch = 1; };
partition = { unit = "block"; };
optimizer = { learning_rate = 1e-3; steps = 300; };
cluster = { device = "cpu"; };
END

field() { sed -n "s/^ *\"$2\": \\([-0-9.e+]*\\),*$/\\1/p" "$1" | head -1; }
arena_mib() { sed -n 's/^ *"placed_bytes": \([0-9]*\),*$/\1/p' "$1" | sort -n | tail -1 | awk '{ printf "%d", $1 / 1048576 }'; }
# row NAME AIM LIMIT_MIB SETTING...: LIMIT_MIB 0: 1.03 times that of the plan by time.
row() {
  name=$1 aim=$2 limit=$3
  shift 3
  "$gen" -p report -o "$scratch/time" "$@" -s partition.balance=time "$scratch/70b.cfg"
  test "$limit" -gt 0 || limit=$(($(arena_mib "$scratch/time") * 103 / 100))
  "$gen" -p report -o "$scratch/report" --times="$scratch/times" --search-seconds="$seconds" "$@" -s partition.balance=joint \
    -s pipeline.schedule=search -s memory.limit_mib="$limit" "$scratch/70b.cfg" 2>"$scratch/said"
  printf '%-14s %9.4f %9.4f %9s %10d %10d %8.1f\n' "$name" "$(field "$scratch/time" utilisation)" "$(field "$scratch/report" utilisation)" \
    "$aim" "$(arena_mib "$scratch/report")" "$limit" "$(sed -n 's/^ "seconds": \([0-9.e+-]*\),*$/\1/p' "$scratch/times")"
}
printf '%-14s %9s %9s %9s %10s %10s %8s\n' plan 'by time' joint aim MiB limit seconds
row 70b .98 569640
row '43 layers' .96 0 -s model.layers=43
row '61 layers' .965 0 -s model.layers=61
row '78 layers' .985 0 -s model.layers=78
row 'a rank at .6' .96 569640 -s cluster.speed=[1,1,1,0.6,1,1,1,1]
row 405b .975 0 -s pipeline.ranks=16 -s pipeline.stages_per_rank=4 -s model.layers=126 -s model.hidden=16384 -s model.heads=128 -s model.ffn=53248
