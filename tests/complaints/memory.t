#!/bin/sh
# memory.t: complaints of memory and speed: what a plan holds is known to the byte, does not grow with the step, and is limited.
. "${top_srcdir:-.}/tests/complaints/support.sh"

four="-s pipeline.ranks=4"
kind_of() { # KIND OPTION...: its bytes on the rank with the most of them; without any, what was asked for, which equals nothing else
  kind=$1
  shift
  "$gen" -p memory "$@" llama.cfg | sed -n "s/^  $kind  *\([0-9]*\) .*/\1/p" | sort -n | tail -n 1 | grep . ||
    echo "no $kind: $*"
}
report() { # FIELD OPTION...: of the whole step, with costs of F, I and W
  field=$1
  shift
  "$gen" -p report -s costs.forward=1 -s costs.backward_input=1 -s costs.backward_weight=1 "$@" llama.cfg |
    sed -n "s/^  \"$field\": \([0-9.]*\),\$/\1/p" | grep . || echo "no $field: $*"
}
is "pytorch #136380: receive buffers do not grow with the microbatches" \
  "$(kind_of receive $four -s pipeline.microbatches=64)" "$(kind_of receive $four -s pipeline.microbatches=8)"
ok "there are some" test "$(kind_of receive $four -s pipeline.microbatches=8)" -gt 0
is "NeMo Automodel #3780: nor do activations of 1f1b" \
  "$(kind_of activations $four -s pipeline.microbatches=64)" "$(kind_of activations $four -s pipeline.microbatches=8)"
ok "which gpipe's do" test "$(kind_of activations $four -s pipeline.microbatches=64 -s pipeline.schedule=gpipe)" -gt \
  "$((4 * $(kind_of activations $four -s pipeline.microbatches=8 -s pipeline.schedule=gpipe)))"
device="$four -s cluster.device=cuda -s pipeline.stages_per_rank=2 -s pipeline.schedule=interleaved"
is "torchtitan #3820: nor what a device's graph of several stages keeps of sent activations" \
  "$(kind_of 'in use' $device -s pipeline.microbatches=64)" "$(kind_of 'in use' $device -s pipeline.microbatches=16)"

# pytorch #188833: every rank but the first begins with receives, and computes as soon as the first has come.
is "pytorch #188833: receives at the head of the warm-up delay nothing: the makespan is the bound" "$(report makespan $four)" \
  "$(report lower_bound $four)"

# pytorch #172668: a rank computes on while its messages are under way: what they cost is paid at the step's ends, not for each microbatch.
makespan() { # SEND MICROBATCHES
  report makespan -s pipeline.ranks=2 -s pipeline.schedule=zb_h1 -s pipeline.microbatches="$2" -s costs.send="$1"
}
added() { awk -v a="$(makespan 0 "$1")" -v b="$(makespan 0.25 "$1")" 'BEGIN { print b - a }'; }
is "pytorch #172668: sends block no computation: what they add does not grow with the microbatches" "$(added 64)" "$(added 16)"
ok "it is not nothing" test "$(added 16)" != 0

ok "Megatron-Bridge PR #5391: layers that do not divide among the stages" train 2 one model.layers=7
ok "nobody writes the layout" same 2 seven model.layers=7 pipeline.ranks=4
ok "and it is at hand" same 2 written model.layers=7 pipeline.ranks=4 partition.layers=[1,2,2,2]
planned=$("$gen" -p memory $four llama.cfg | sed -n 's/^rank 0: \([0-9]*\) bytes placed.*/\1/p')
build four llama.cfg $four
ok "Megatron-Bridge #5077: the plan states bytes" test "$planned" -gt 0
matches "and the binary has them" "$(./four info --json)" "*\"rank\":\[{\"rank\":0,\"arena_bytes\":$planned,*"

"$gen" --check $four -s memory.limit_mib=1 -s pipeline.schedule=1f1b -s model.hidden=256 llama.cfg 2>said
is "zero-bubble #8: a limit of the memory of each rank is kept: status" $? 78
matches "zero-bubble #8: message" "$(cat said)" '*memory.limit_mib = 1*'
finish
