#!/bin/sh
# hangs.t: complaints of hangs: orders that can deadlock are refused, those that are planned end, and a rank that stops is named.
. "${top_srcdir:-.}/tests/complaints/support.sh"

# ---- Megatron-LM #5100, #1450 ----
cat llama.cfg - >lengths.cfg <<'END'
shapes = ({ sequence = 8; microbatches = 7; });
END
ok "Megatron-LM #5100: windows of several lengths on four ranks" build lengths lengths.cfg -s pipeline.ranks=4 -s batch.packed=true
awk 'BEGIN { for (i = 0; i < 400; i++) { for (j = 0; j < 3 + (i % 40 < 20) * 7; j++) printf "%c", 65 + (i + j) % 26; print "" } }' >lines
ok "of a packed file" "$tokens" --bytes --end-of-text 10 --pack 16 -o packed.bin lines
ok "train to the end" timeout 300 ./lengths train --data packed.bin --steps 6 --quiet --timeout 20
ok "Megatron-LM #1450: one rank, for comparison" train 3 one
ok "two ranks with two stages each do not hang" same 3 chunks pipeline.ranks=2 pipeline.stages_per_rank=2 pipeline.schedule=interleaved

"$gen" -p actions -s pipeline.ranks=4 -o order llama.cfg
refused() { # NAME PATTERN SED: the order that the edit makes, which is another one
  sed "$3" order >changed
  "$gen" --check -s pipeline.ranks=4 --actions=changed llama.cfg >said 2>&1
  is "$1: status" $? 65
  matches "$1: message" "$(cat said)" "$2"
}
refused "both ends receive before they send" '*deadlock with*' '1 { s/ 0SEND_F.//g; s/$/ 0SEND_F0 0SEND_F1 0SEND_F2 0SEND_F3/ }'
refused "sends in another order than their receives" '*is received as number*' '1 { s/ 0SEND_F0/ SWAP/; s/ 0SEND_F1/ 0SEND_F0/; s/ SWAP 0F1/ 0F1 0SEND_F1/ }'
refused "a receive that is missing" '*RECV_F3*' '2s/ 1RECV_F3//'

# ---- Megatron-Bridge #5088: a hang that nobody could reproduce ----
ok "four ranks" build four llama.cfg -s pipeline.ranks=4 -s optimizer.steps=1000000
./four train --data data.bin --quiet --timeout 1 --log log 2>err &
run=$!
await_steps log 3
kill -STOP "$(children $run | sed -n 3p)"
wait $run
is "Megatron-Bridge #5088: a rank that stops ends the run" $? 75
matches "and is named, with its action and who waits for it" "$(grep -v '^{' err)" '*penstock: rank 2 (pid *, host *) * after *; rank * waits at * for rank *'

# ---- torchtitan #775 ----
ok "torchtitan #775: fewer microbatches than ranks, one rank" train 3 few pipeline.microbatches=2
ok "on four ranks" train 3 few_four pipeline.ranks=4 pipeline.microbatches=2
ok "with the same bits" same_bits 3 few few_four
finish
