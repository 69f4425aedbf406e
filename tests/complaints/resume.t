#!/bin/sh
# resume.t: complaints of what pipelining cannot do, and of runs that do not resume: other models are refused, all else has the same bits.
. "${top_srcdir:-.}/tests/complaints/support.sh"

v="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v"
ok "one rank trains" train 6 one
ok "a V" build v llama.cfg $v
resume() { ./"$1" train --data data.bin --seed 7 --quiet --checkpoint resumed --log resumed.log --resume --steps "$2" 2>said; }
ok "KempnerForge #114: a run that stops after a step" resume v 1
ok "and two more" resume v 3
ok "ms-swift #8240: a plan of other stages" build plain llama.cfg -s pipeline.ranks=2
ok "goes on with the run" resume plain 5
ok "nanotron #221: and the first one again" resume v 6
ok "to the same weights" cmp resumed/latest/model.safetensors one.ckpt/latest/model.safetensors
ok "and moments" cmp resumed/latest/optimizer.safetensors one.ckpt/latest/optimizer.safetensors
is "with the same losses" "$(log_field resumed.log loss)" "$(log_field one.log loss)"

ok "another model" build wide llama.cfg -s model.ffn=64
resume wide 8
is "Megatron-LM PR #6920: a run does not resume from another model: status" $? 65
matches "it names what differs" "$(cat said)" '*: a checkpoint of another model: intermediate_size = 48 there, model.ffn = 64 here*'
ok "another model of the same shapes" build heads llama.cfg -s model.heads=8 -s model.kv_heads=4 -s model.rope_theta=5000
resume heads 8
is "nor from one of the same shapes" $? 65

cat llama.cfg - >lengths.cfg <<'END'
shapes = ({ sequence = 8; microbatches = 7; });
END
ok "torchtitan #3777: several lengths with pipelining" build lengths lengths.cfg $v -s batch.packed=true

"$gen" -p csv -o v.csv $v llama.cfg
ok "torchtitan #774: a V in a file" "$gen" -o file.c $v -s pipeline.placement=v -s pipeline.schedule=file -s pipeline.schedule_file=v.csv llama.cfg
is "with the V's order" "$("$gen" -p actions $v -s pipeline.placement=v -s pipeline.schedule=file -s pipeline.schedule_file=v.csv llama.cfg)" \
  "$("$gen" -p actions $v llama.cfg)"
finish
