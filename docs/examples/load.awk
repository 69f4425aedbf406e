# load.awk LOG...: expert_load and idle_experts of each log, means of 30 steps, as bars (docs/experts.md).
function field(name) { match($0, "\"" name "\":[0-9.]+"); return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) / 30 }
FNR == 1 { logs++; spans = 0 }
FNR % 30 == 1 { spans++ }
{ load[logs, spans] += field("expert_load"); idle[logs, spans] += field("idle_experts") }
END {
  for (span = 1; span <= spans; span++) {
    printf "%7s", span * 30 - 29 "-" span * 30
    for (log_ = 1; log_ <= logs; log_++) {
      bar = ""
      while (length(bar) + .5 < 2 * load[log_, span]) bar = bar "#"
      printf "   %.1f %4.1f %-14s", load[log_, span], idle[log_, span], bar
    }
    print ""
  }
}
