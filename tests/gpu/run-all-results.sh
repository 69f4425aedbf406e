# run-all-results.sh: the files of run-all in $FOLDER: the table is made again after each part from what the parts have left in $WORK.

# publish FILE NAME: puts it into $FOLDER, whole, by a rename: from beside the folder, where that is on the same disk, so that nothing else is ever in it.
publish() { cp "$1" "$STAGING/.run-all.new" && mv -f "$STAGING/.run-all.new" "$FOLDER/$2"; }
publish_results() {
  results >"$WORK/results.md" 2>/dev/null
  publish "$WORK/results.md" results.md
}

# loaded PROGRAM: the libraries that it finds.
loaded() { LD_LIBRARY_PATH=$LIBRARIES ldd "$PROGRAMS/$1" 2>/dev/null | sed -n 's/.* => \(.*\) (0x.*/\1/p' | sort -u; }

# log_field NAME: that field of each line of a log of steps.
log_field() { sed -n "s/.*\"$1\":\\([^,}]*\\).*/\\1/p"; }

# spread LOG: of steps from the sixth on, the median and the 99th percentile in milliseconds, how many they are, and what the second is called: of
# fewer than a hundred it is the longest.
spread() {
  log_field step_ms <"$1" | tail -n +6 | sort -n | awk '{ ms[NR] = $1 }
    function at(share) { return ms[int(share * (NR - 1)) + 1] }
    END { if (NR) print at(0.5), at(NR < 100 ? 1 : 0.99), NR, NR < 100 ? "the longest" : "99th percentile" }'
}

# note_spread NAME: keeps that of a training for the table.
note_spread() {
  spread "$WORK/$1.log" | while read -r median most count called; do echo "$1: median step $median ms, $called $most ms, $count steps"; done >>"$WORK/medians"
}

# peak: the chip's TFLOP/s: the data sheet's, dense bf16, or, where the chip is another, the rate of bench's largest product.
peak() {
  case $(cat "$WORK/device" 2>/dev/null) in
    *'H100 PCIe'*) echo 756 ;;
    *H100* | *H200*) echo 989 ;;
    *A100*) echo 312 ;;
    *) sed -n 's/^LINEAR bf16 .*8192 x 8192 x 8192.* \([0-9.]*\) TFLOP.s$/\1/p' "$WORK/bench.txt" 2>/dev/null | head -n 1 ;;
  esac
}

# note_model NAME OPERATIONS WALL HOST COUNTED: keeps the figures of a training for the table: of OPERATIONS a token, that took WALL seconds, and HOST of
# the host's processor for the last COUNTED steps.
note_model() {
  spread "$WORK/$1.log" | while read -r median most count called; do
    test "$called" != 'the longest' || most="$most, the longest of few"
    log_field step_ms <"$WORK/$1.log" | awk -v name="$1" -v median="$median" -v most="$most" -v count="$count" -v operations="$2" \
      -v tokens="$(log_field tokens <"$WORK/$1.log" | head -n 1)" -v wall="$3" -v host="$4" -v counted="$5" '{ sum += $1 }
      END { rate = tokens / median * 1e3
        printf "%s|%s|%s|%d|%.0f|%s|%s|%.1f\n", name, median, most, count, rate, rate * operations * 1e-12,
          (counted > 0) ? sprintf("%.3g", 1e3 * host / counted) : "?", wall - sum * 1e-3 }'
  done >>"$WORK/models"
}

# sum_kernels CSV: of each kernel that ncu has timed, milliseconds, launches, and its name.
sum_kernels() {
  awk -F '","' '/"Kernel Name"/ { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { value = $NF; gsub(/[",]/, "", value); unit = $at["Metric Unit"]; name = $at["Kernel Name"]; sub(/[(<].*/, "", name)
      ms[name] += value * (unit ~ /^(s|second)$/ ? 1e3 : unit ~ /^(ms|msecond)$/ ? 1 : unit ~ /^(us|usecond)$/ ? 1e-3 : 1e-6); count[name]++ }
    END { for (name in ms) printf "%10.3f ms %5d x %s\n", ms[name], count[name], name }' "$1" | sort -rn
}

# title: the head of the table, with the device's name when it is known.
title() {
  read -r title_device 2>/dev/null <"$WORK/device"
  echo "# $(date -u +%Y-%m-%d), ${title_device:-no GPU}"
  printf '\n| part | result | time | notes |\n|---|---|---|---|\n'
}

# fenced FILE...: what these have.
fenced() {
  echo '```'
  cat "$@"
  echo '```'
}

results() {
  cat "$WORK/title" "$WORK/rows"
  if test -s "$WORK/train.log"; then
    printf '\n## Training: step, loss, milliseconds (cuda)\n\n'
    {
      sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*"step_ms":\([^,}]*\).*/\1 \2 \3/p' "$WORK/train.log"
      cat "$WORK/medians"
      grep -h 'is one graph\|cannot be one graph\|: NCCL ' "$WORK"/*.out | sort -u
    } | fenced -
  fi
  if test -s "$WORK/models"; then
    printf '\n## Models in bf16 on one GPU\n\n'
    results_peak=$(peak)
    echo "| model | median step, ms | p99, ms | steps measured | tokens/s | MFU of ${results_peak:-?} TFLOP/s | host processor ms a step | start and end, s |"
    echo '|---|---|---|---|---|---|---|---|'
    awk -F '|' -v OFS=' | ' -v peak="$results_peak" '{ $6 = peak ? sprintf("%.3f", $6 / peak) : "?"; $1 = $1; print "| " $0 " |" }' "$WORK/models"
    printf '\n'
    grep -h 'torch.compile:' "$WORK"/*_peer.out | fenced -
  fi
  if test -s "$WORK/kernels.txt"; then
    printf '\n## Kernels of llama_1b: 700 launches\n\n'
    head -n 30 "$WORK/kernels.txt" | fenced -
  fi
  if test -s "$WORK/bench.txt"; then
    printf '\n## Rates\n\n'
    fenced "$WORK/bench.txt" "$WORK/hop.out" "$WORK/peer.txt"
  fi
  printf '\n'
  test ! -f "$WORK/end" || cat "$WORK/end"
}
