#!/bin/sh
# balanced_steps.t: model.aux_scope = "step": routers that are balanced by the choices of the last step that was not skipped. The bits over ranks,
# stages, schedules, shards and recomputation; the counts in checkpoints, with which any of these plans continues; and after the loss of a rank.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/routers.sh"

describe qwen3_moe 2 "kv_heads = 2; head_dim = 12; experts = 8; experts_per_token = 3; moe_ffn = 24; router_normalize = true; aux_loss = 0.02;"
sed -i 's/steps = 8;/steps = 100;/' "$scratch/qwen3_moe.cfg"
make_tokens "$scratch/data.bin" 20000
step="-s model.aux_scope=step"
v="-s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v -s partition.unit=block -s memory.recompute=layer"
data="-s data_parallel.replicas=2"
weights="-s data_parallel.shard=weights -s pipeline.ranks=2 -s memory.recompute=full -s memory.snapshot=true"
compare_runs 6 <<END_RUNS
qwen3_moe one      $step
qwen3_moe v        $step $v -s memory.audit=true
qwen3_moe data_one $step $data
qwen3_moe weights  $step $data $weights
qwen3_moe moments  $step $data -s data_parallel.shard=optimizer -s data_parallel.reduce=step
qwen3_moe sequence_one
END_RUNS
ok "audits find nothing" "$scratch/qwen3_moe_v" train --data "$scratch/data.bin" --steps 8 --audit 1 --quiet

# ---- the counts ----
# find_counts LAYER CHECKPOINT: sets counts_at, where counts_file has how often each expert was chosen; counts: writes them.
find_counts() {
  counts_file=$2/latest/optimizer.safetensors
  counts_at=$(header "$counts_file" | sed "s/.*\"model.layers.$1.mlp.gate.choices\":{[^}]*\"shape\":\[8\],\"data_offsets\":\[\([0-9]*\),.*/\1/")
  counts_at=$((counts_at + 8 + $(od -An -tu8 -N 8 "$counts_file" | tr -d ' ')))
}
counts() {
  find_counts "$1" "$2"
  od -An -tf4 -v -w32 -j "$counts_at" -N 32 "$counts_file"
}
sum() { tr -s ' ' '\n' | awk '{ sum += $1 } END { print sum }'; }
# A step has 128 tokens, each of which has chosen 3 experts.
is "a step's choices are in the checkpoint" "$(counts 0 "$scratch/qwen3_moe_one.ckpt" | sum) $(counts 1 "$scratch/qwen3_moe_one.ckpt" | sum)" "384 384"
is "and those of all replicas" "$(counts 1 "$scratch/qwen3_moe_weights.ckpt" | sum)" 768
is "the model's file has none" "$(header "$scratch/qwen3_moe_one.ckpt/latest/model.safetensors" | grep -c choices)" 0
ok "nor the manifest updates of them" sh -c "! grep 'gate\"' '$scratch/qwen3_moe_one.ckpt/latest/manifest.json'"
is "nor are they parameters" "$("$scratch/qwen3_moe_one" info | grep parameters)" "$("$scratch/qwen3_moe_sequence_one" info | grep parameters)"

# ---- which a run continues with ----
cut() { # NAME STEPS: trains $scratch/qwen3_moe_NAME for so many steps, in cut.ckpt.
  anew "$scratch/cut.ckpt"
  "$scratch/qwen3_moe_$1" train --seed 7 --data "$scratch/data.bin" --steps "$2" --quiet --checkpoint "$scratch/cut.ckpt"
}
# as_uncut NAME: what goes_on has left has the last bits of NAME's six steps.
as_uncut() {
  { log_field "$scratch/on.log" loss && log_field "$scratch/on.log" grad_norm; } >"$scratch/on.bits"
  sed -n '4,6p;10,12p' "$scratch/qwen3_moe_$1.bits" | cmp - "$scratch/on.bits" &&
    cmp "$scratch/qwen3_moe_$1.ckpt/latest/optimizer.safetensors" "$scratch/on.ckpt/latest/optimizer.safetensors" &&
    cmp "$scratch/qwen3_moe_$1.ckpt/latest/model.safetensors" "$scratch/on.ckpt/latest/model.safetensors"
}
while read -r from to; do
  ok "$from stops after three steps" cut "$from" 3
  ok "$to continues" goes_on cut "qwen3_moe_$to"
  ok "to the bits of six" as_uncut "$from"
  is "without a word" "$(complaints "$scratch/on.err")" ""
done <<'END_RUNS'
one      v
v        one
data_one weights
weights  moments
END_RUNS
ok "balanced otherwise, three steps" cut sequence_one 3
ok "it continues" goes_on cut qwen3_moe_v
matches "which is said" "$(complaints "$scratch/on.err")" \
  "penstock: *step-00000003: has no counts of choices of 2 routers: the first step balances as if all experts had been chosen equally often"
uniform() { awk -v aux="$1" 'BEGIN { d = aux / 0.04 - 1; exit !(d * d < 1e-12) }'; } # 0.02 a layer
aux() { log_field "$1" aux_loss | sed -n "$2p"; }
ok "and holds" uniform "$(aux "$scratch/on.log" 1)"
ok "of this step alone" sh -c "! test $(aux "$scratch/on.log" 1) = $(aux "$scratch/on.log" 2)"
ok "a run that balances by steps, three steps" cut one 3
ok "it continues otherwise" goes_on cut qwen3_moe_sequence_one
is "without a word" "$(complaints "$scratch/on.err")" ""
ok "weights alone" "$scratch/qwen3_moe_v" train --init "$scratch/cut.ckpt/latest" --data "$scratch/data.bin" --steps 1 --quiet --log "$scratch/init.log"
ok "have no choices" uniform "$(aux "$scratch/init.log" 1)"
ok "evaluation reads none" "$scratch/qwen3_moe_v" eval --init "$scratch/cut.ckpt/latest" --data "$scratch/data.bin" --steps 1 --quiet
ok "three steps again" cut one 3
find_counts 1 "$scratch/cut.ckpt"
printf '\177' | dd of="$counts_file" bs=1 seek=$((counts_at + 2)) conv=notrunc 2>/dev/null
fails "a count that was changed" 65 "mlp.gate.choices" "$scratch/qwen3_moe_one" train --data "$scratch/data.bin" --steps 6 --quiet --resume --checkpoint "$scratch/cut.ckpt"

# ---- a skipped step ----
make_tokens "$scratch/masked" 20000 1 150
ok "the first step is skipped" "$scratch/qwen3_moe_v" train --data "$scratch/masked" --steps 3 --quiet --log "$scratch/skipped.log" --checkpoint "$scratch/skipped.ckpt"
is "it is" "$(sed -n 1p "$scratch/skipped.log" | grep -c '"skipped":1')" 1
ok "step 2: nothing was chosen before" uniform "$(aux "$scratch/skipped.log" 2)"
ok "step 3: by what the second has chosen" sh -c "! test $(aux "$scratch/skipped.log" 2) = $(aux "$scratch/skipped.log" 3)"
is "its choices alone" "$(counts 0 "$scratch/skipped.ckpt" | sum)" 384

# ---- after the loss of a rank ----
# The run has no end of its own: a signal ends it, some steps after the loss.
given="--seed 7 --quiet --data $scratch/data.bin"
# shellcheck disable=SC2086
"$scratch/qwen3_moe_v" train $given --steps 1000000000 --checkpoint "$scratch/lost.ckpt" --log "$scratch/lost.log" --restarts 1 --recover-every 1 2>"$scratch/lost.err" &
run=$!
await_steps "$scratch/lost.log" 5
kill -KILL "$(children $run | sed -n 2p)"
tries=0
until sed '1,/"event":"restart"/d' "$scratch/lost.log" | grep -q '"step"' || test $tries -ge 2400; do sleep 0.05; tries=$((tries + 1)); done
kill -TERM $run
wait $run
is "a rank is lost" "$?" 0
is "its state was in memory" "$(grep -c '"event":"restart".*"source":"memory"' "$scratch/lost.log")" 1
# shellcheck disable=SC2086
ok "undisturbed" "$scratch/qwen3_moe_v" train $given --steps "$(readlink "$scratch/lost.ckpt/latest" | sed 's/^step-0*//')" --checkpoint "$scratch/whole.ckpt"
for file in model optimizer; do ok "the bits of $file" cmp "$scratch/whole.ckpt/latest/$file.safetensors" "$scratch/lost.ckpt/latest/$file.safetensors"; done

# ---- weights of a file on two hosts, which compare what they read ----
hosts_name="two hosts begin with weights of a file"
if test -n "$OFI_ARCHIVES" && sh "$top_srcdir/tests/support/hosts.sh" 2 true; then
  make_secret "$scratch/secret"
  build hosts "$scratch/qwen3_moe.cfg" $step -s pipeline.ranks=2 -s cluster.bind=none -s cluster.hosts=[host1,host2] -s cluster.port=$((20000 + $$ % 12000))
  ok "$hosts_name" on_hosts 2 hosts train --init "$scratch/whole.ckpt/latest/model.safetensors" --data "$scratch/data.bin" --steps 1 --quiet --log "$scratch/hosts.log"
  ok "which have no choices" uniform "$(aux "$scratch/hosts.log" 1)"
else
  skip "$hosts_name" "no libfabric, or no network namespaces here"
fi

# ---- what is refused ----
refused() { # TEXT SETTING...
  refused_text=$1
  shift
  fails "$*" 78 "$refused_text" "$gen" --check "$scratch/qwen3_moe.cfg" $step "$@"
}
refused "at most 16777216 tokens a step, up to which choices are counted exactly, not 20480000" -s pipeline.microbatches=40000 -s batch.microbatch=16 \
  -s data_parallel.replicas=2 -s expert_parallel.rows=256
refused "not 33554432" -s batch.microbatch=64 -s shapes.sequence=[8] -s shapes.microbatches=[65536]
refused "none ends in \"mlp.gate\"" -s model.frozen=[mlp.gate]
refused "no name has the ending" -s "optimizer.groups=[mlp.gate: rate=2]"
finish
