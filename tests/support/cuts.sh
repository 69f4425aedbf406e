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
