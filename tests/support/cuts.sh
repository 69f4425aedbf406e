# cuts.sh: what tests of partition.balance = "joint" share. A test sources this after lib.sh.

# arena REPORT: the bytes of its largest arena.
arena() { sed -n 's/^ *"placed_bytes": \([0-9]*\),*$/\1/p' "$1" | sort -n | tail -1; }
# at_most NUMBER NUMBER: the first is not greater, but for rounding.
at_most() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && b != "" && a <= b * (1 + 1e-12)) }'; }
# lists LAYERS STAGES: every list of partition.layers.
lists() {
  awk -v n="$1" -v s="$2" '
    function fill(stage, left, text,   c) {
      if (stage == s - 1) { print text left; return }
      for (c = stage > 0; c <= left; c++) fill(stage + 1, left - c, text c ",")
    }
    BEGIN { fill(0, n, "") }'
}

# try_cuts OPTION...: every cut of $small, of 4 layers in two stages, with every recomputation: the bytes and the time of each, in $scratch/all.
# The test has report(), and time_of REPORT, which says what it compares.
try_cuts() {
  for first in none attention layer full; do
    for second in none attention layer full; do
      for list in $(lists 4 2); do
        report "$scratch/one" "$small" "$@" -s "memory.recompute=[$first,$second]" -s "partition.layers=[$list]" &&
          echo "$(arena "$scratch/one") $(time_of "$scratch/one")"
      done
    done
  done >"$scratch/all"
  is "all cuts with all choices are tried" "$(wc -l <"$scratch/all")" 80
}
# least_mib: the least limit that one of them keeps.
least_mib() { awk 'NR == 1 || $1 < least { least = $1 } END { print int(least / 1048576) + 1 }' "$scratch/all"; }
# finds_least MIB OPTION...: the joint choice within a limit, $scratch/joint, has the least time of those of them that keep it.
finds_least() {
  within=$1
  shift
  report "$scratch/joint" "$small" "$@" -s partition.balance=joint -s memory.recompute=auto -s memory.limit_mib="$within"
  is "cut and recomputation: the least time within $within MiB" "$(time_of "$scratch/joint")" \
    "$(awk -v limit=$((within << 20)) '$1 <= limit && (best == "" || $2 < best) { best = $2 } END { print best }' "$scratch/all")"
}

# not_worse NAME OPTION...: $scratch/count, time and joint, the reports by each partition.balance; what the search says is in said.BALANCE. The joint
# choice is not worse than the others.
not_worse() {
  not_worse_name=$1
  shift
  for balance in count time joint; do
    report "$scratch/$balance" "$small" "$@" -s partition.balance=$balance --search-seconds=0
    cp "$scratch/said" "$scratch/said.$balance"
  done
  for balance in count time; do
    ok "$not_worse_name: not worse than by $balance" at_most "$(time_of "$scratch/joint")" "$(time_of "$scratch/$balance")"
  done
}
