# run-all-results.sh: the files of run-all in $FOLDER: the table is made again after each part from what the parts have left in $WORK.

# publish NAME COMMAND...: puts what the command prints into $FOLDER, by a rename: from beside the folder, where that is on the same disk, so that
# nothing else is ever in it.
publish() {
  publish_name=$1
  shift
  "$@" >"$staging/.run-all.new" && mv -f "$staging/.run-all.new" "$FOLDER/$publish_name"
}
staging=$FOLDER/..
test -w "$staging" && test "$(stat -c %d "$staging")" = "$(stat -c %d "$FOLDER")" || staging=$FOLDER
# publish_files: those that a part has left in $WORK/files, also one that was ended; they go to $WORK, where sections read them.
publish_files() {
  for published in "$WORK"/files/*; do
    test ! -s "$published" || { publish "${published##*/}" cat "$published" && mv "$published" "$WORK"; }
  done
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

# fenced FILE...: what these have.
fenced() {
  echo '```'
  cat "$@" 2>/dev/null
  echo '```'
}

# section NAME: makes one again.
section() { "section_$1" >"$WORK/section.$1"; }
section_head() {
  device=
  test ! -s "$WORK/device" || read -r device <"$WORK/device"
  echo "# $(date -u +%Y-%m-%d), ${device:-no GPU}"
  printf '\n| part | result | time | notes |\n|---|---|---|---|\n'
}
section_training() {
  test -s "$WORK/train.log" || return
  printf '\n## Training: step, loss, milliseconds (cuda)\n\n'
  sed -n 's/.*"step":\([0-9]*\),"loss":\([^,]*\),.*"step_ms":\([^,}]*\).*/\1 \2 \3/p' "$WORK/train.log" >"$WORK/losses"
  grep -h 'is one graph\|cannot be one graph\|: NCCL ' "$WORK"/*.out | sort -u >"$WORK/graphs"
  fenced "$WORK/losses" "$WORK/medians" "$WORK/graphs"
}
section_models() {
  printf '\n## Models in bf16 on one GPU\n\n'
  peak=$(peak)
  echo "| model | median step, ms | p99, ms | steps measured | tokens/s | MFU of ${peak:-?} TFLOP/s | host processor ms a step | start and end, s |"
  echo '|---|---|---|---|---|---|---|---|'
  awk -F '|' -v OFS=' | ' -v peak="$peak" '{ $6 = peak ? sprintf("%.3f", $6 / peak) : "?"; $1 = $1; print "| " $0 " |" }' "$WORK/models"
  echo
  grep -h 'torch.compile:' "$WORK"/*_peer.out 2>/dev/null | fenced -
}
section_kernels() {
  test -s "$WORK/kernels.txt" || return
  printf '\n## Kernels of llama_1b: 700 launches\n\n'
  head -n 30 "$WORK/kernels.txt" | fenced -
}
section_rates() {
  printf '\n## Rates\n\n'
  fenced "$WORK/bench.txt" "$WORK/hop.out" "$WORK/peer.txt"
}

# look_at PART: what it has left for the table.
look_at() {
  publish_files
  case $1 in
    facts) section head ;;
    bench) section rates && section models ;;
    peer | hop) section rates ;;
    llama_1b* | gpt2_124m*) section models ;;
    ncu_step) section kernels ;;
    *) section training ;;
  esac
}
results() {
  cat "$WORK/section.head" "$WORK/rows"
  for results_section in training models kernels rates end; do
    test ! -s "$WORK/section.$results_section" || cat "$WORK/section.$results_section"
  done
}
