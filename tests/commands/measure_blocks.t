#!/bin/sh
# measure_blocks.t: the costs of blocks: what the command measure writes, and what the generator makes of them for any cut, schedule
# and microbatch.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/costs.sh"
cd "$scratch" || exit 99

cat >two.cfg <<'END'
pipeline = { ranks = 2; microbatches = 6; schedule = "1f1b"; };
model = { family = "llama"; layers = 4; hidden = 64; heads = 4; kv_heads = 2; ffn = 160; vocab = 256; sequence = 48; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 100; };
END

# ---- costs that are made up ----

costs '' '' >made.json

# report FIELD GEN OPTION...: that figure of the report, by the costs of $file.
file=made.json
report() {
  report_field=$1
  shift
  "$gen" -p report --costs="$file" -s partition.balance=count "$@" two.cfg 2>/dev/null | sed -n "s/^  \"$report_field\": \\(.*\\),/\\1/p"
}
sum() { awk "BEGIN { printf \"%.1f\", $1 }"; }
one='-s pipeline.ranks=1 -s pipeline.microbatches=1'
# Of a layer F is 26 and B 55; of four layers, embedding, norm and head F is 138 and B 287.
is "one stage costs the sum of its blocks" "$(report makespan $one)" "425.0"
is "so does a step of six microbatches" "$(report makespan -s pipeline.ranks=1)" "2550.0"
is "and one of another size" "$(report makespan $one -s batch.microbatch=4)" "4250.0"
is "a split backward costs I and W" "$(report makespan $one -s pipeline.zero_bubble=true)" "436.0"
is "another cut has the same sum" "$(report makespan $one -s pipeline.stages_per_rank=4)" "425.0"
is "and another schedule" "$(report makespan $one -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v)" "436.0"
is "the busiest of two ranks has norm and head" "$(report work)" "1560.0"
is "with another cut embedding and three layers" "$(report work -s 'partition.layers=[3,1]')" "1476.0"
is "a cut within a layer" "$(report work -s 'partition.before=["model.layers.3.mlp"]')" "1692.0"

# Recomputation: all blocks but the last of each segment run again whole.
is "a stage that recomputes all" "$(report makespan $one -s memory.recompute=full)" "$(sum '425 + 108 + 7')"
is "a layer at a time" "$(report makespan $one -s memory.recompute=layer)" "$(sum '425 + 4 * (10 + 11) + 3 + 7')"
elements=$((2 * 256 * 64 + 4 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 160 + 2 * 64) + 64))
is "the step has the optimizer too" "$(report step $one)" "$(awk "BEGIN { printf \"%.15g\", 425 + $elements / 1000 }")"

# Messages and collectives. A message of this topology is in the middle of the two sizes.
links >links.json
alone=$(report makespan -s pipeline.microbatches=1)
file=links.json
is "a message takes its time once, there and back" "$(report makespan -s pipeline.microbatches=1)" "$(sum "$alone + 2 * 3")"
is "the copy is the sender's" "$(report work)" "$(sum '1560 + 6 * 2')"
is "collectives are in proportion to their bytes" "$(report makespan $one -s data_parallel.replicas=2)" \
  "$(awk "BEGIN { printf \"%.15g\", 425 + 70 * 4 * $elements / 1000000 }")"

# In groups a byte that is sent costs 100 ms for 10^6, in the sum and in the gathering. Shards are of whole blocks of 4096 elements, and the
# largest one counts: up to a half more. A group of one sends half of the bytes to the other; one of two half, and half of that half.
for groups in "2 1 0.5" "4 2 0.75"; do
  set -- $groups
  got=$(report makespan $one -s "data_parallel.replicas=$1" -s "data_parallel.shard_ranks=$2")
  ok "groups of $2 of $1 replicas: $got" \
    awk "BEGIN { least = 2 * 100 * $3 * 4 * $elements / 1000000; exit !($got - 425 >= least && $got - 425 < 1.5 * least) }"
done

# A pair takes what the file says; the topology's own figure is in another unit.
file=made.json pairs="-s pipeline.ranks=1 -s pipeline.stages_per_rank=2 -s pipeline.schedule=dual_pipe_v"
sum=$(report makespan $pairs)
sed 's/"version"/"overlap":1,&/' made.json >pairs.json
file=pairs.json
ok "a pair takes what the file says" test -n "$sum" -a "$(report makespan $pairs -s costs.overlap=100)" != "$sum"

# The peak that was measured, for the log's mfu, where the topology has none.
peak_of() { # FILE GEN OPTION...: of the plan; the rest of it goes to peak.rest, but for the command
  peak_file=$1
  shift
  "$gen" --costs="$peak_file" -o peak.c "$@" two.cfg 2>/dev/null
  sed 's/^ *\.flops = .*//; /--costs=/d' peak.c >peak.rest
  sed -n 's/.*\.peak_tflops = \([^,]*\),.*/\1/p' peak.c
}
sed 's/"version"/"peak_tflops":0.5,&/' made.json >peak.json
sed 's/"version"/"peak_tflops":2,&/' made.json >higher.json
is "the plan has the peak of the costs" "$(peak_of peak.json)" 0.5
cp peak.rest peak.wanted
is "or another" "$(peak_of higher.json)" 2
ok "on which nothing else depends, so no digest" cmp peak.rest peak.wanted
is "or the topology's own" "$(peak_of peak.json -s cluster.peak_tflops=3)" 3
is "or none" "$(peak_of made.json)" ""
ok "a binary with the peak" build peaked two.cfg --costs=peak.json -s optimizer.steps=2
awk 'BEGIN { for (i = 0; i < 1200; i++) printf "%c", 32 + i % 90 }' >peak.txt
"$tokens" --bytes -o peak.bin peak.txt 2>/dev/null
ok "it trains" ./peaked train --data peak.bin --log peak.log --quiet
is "its log has mfu" "$(log_field peak.log mfu | awk '$1 > 0' | wc -l | tr -d ' ')" 2

# The same costs give the same plan, which names them.
"$gen" --costs=made.json -o first.c two.cfg
mkdir elsewhere && cp made.json elsewhere
"$gen" --costs=elsewhere/made.json -o second.c two.cfg
ok "the same costs give the same bytes" cmp -s first.c second.c
is "the plan names the file and its unit" "$(grep -c -e '--costs=made.json two.cfg' first.c) $(grep -c 'predicted (in ms)' first.c)" "1 1"

# ---- files that do not fit ----

# fails_with STATUS MESSAGE GEN OPTION...
fails_with() {
  fails_status=$1 fails_message=$2
  shift 2
  "$gen" --check "$@" two.cfg >out 2>err
  is "$fails_message" "$? $(complaints err)" "$fails_status $fails_message"
}
refuses() { fails_with 65 "$@"; }
change() { sed "$1" made.json >bad.json; }
mkdir folder
fails_with 66 "penstock-gen: none.json: No such file or directory" --costs=none.json
fails_with 66 "penstock-gen: folder: not a regular file" --costs=folder
printf '{\n"version": 2,\n!\n}\n' >bad.json
refuses "bad.json:3: string or '}' expected near '!'" --costs=bad.json
echo '[1]' >bad.json
refuses "bad.json: the file: must be an object, as penstock-NAME measure writes it" --costs=bad.json
echo '{}' >bad.json
refuses "bad.json: version: is missing" --costs=bad.json
anew="costs of version 1 (of the stages of one plan, by train --measure) are no longer read; measure those of blocks, for any plan: 'penstock-NAME measure \
--output FILE', by a binary that make or 'penstock-gen --blocks' built, then 'penstock-gen --costs=FILE'"
printf '{\n"unit": "ms",\n"stages": []}\n' >bad.json
fails_with 78 "bad.json:3: stages: $anew" --costs=bad.json
printf '{\n"version": 1, "blocks": []}\n' >bad.json
fails_with 78 "bad.json:2: version: $anew" --costs=bad.json
fails_with 78 '-s costs.overlap = 2: not with --costs, which are in ms: made.json must have "overlap"' --costs=made.json $pairs -s costs.overlap=2
ok "where there are no pairs it is of no use" "$gen" --check --costs=made.json -s costs.overlap=2 two.cfg
change 's/"version"/"overlap":-1,&/'
refuses "bad.json: overlap = -1: 0, or a number from 1e-30 to 1e+30" --costs=bad.json
refuses "made.json: blocks: model.embed_tokens was measured with microbatches of 2, 4, the topology has 3" --costs=made.json -s batch.microbatch=3
refuses "made.json: dtype: f32 was measured, the topology has bf16" --costs=made.json -s model.dtype=bf16
refuses "made.json: sequence: another was measured than model.sequence = 64" --costs=made.json -s model.sequence=64
refuses "made.json: blocks: transformer.wte was not measured" --costs=made.json -s model.family=gpt2 -s model.kv_heads=4
change 's/"version":2/"version":3/'
refuses "bad.json: version: must be 2" --costs=bad.json
change 's/"forward":10,/"forward":-1,/'
refuses "bad.json: blocks[1].forward = -1: 0, or a number from 1e-30 to 1e+30" --costs=bad.json
change 's/"forward":10,//'
refuses "bad.json: blocks[1].forward: is missing" --costs=bad.json
change 's/"block":"lm_head"/"block":7/g'
refuses "bad.json: blocks[4].block: must be a string" --costs=bad.json
change 's/"microbatch":2,/"microbatch":99999999999,/'
refuses "bad.json: blocks[0].microbatch = 99999999999: a whole number from 1 to 65536" --costs=bad.json
change 's/"microbatch":2,/"microbatch":0.5,/'
refuses "bad.json: blocks[0].microbatch = 0.5: a whole number from 1 to 65536" --costs=bad.json
change 's/"ms_per_element":0.001//'
refuses "bad.json: optimizer.ms_per_element: is missing" --costs=bad.json
change 's/"messages":\[\]/"messages":[{"transport":"shm","bytes":8}]/'
refuses "bad.json: messages[0].ms: is missing" --costs=bad.json
change 's/"blocks":\[.*"optimizer"/"blocks":7,"optimizer"/'
refuses "bad.json: blocks: must be a list with an object for each block" --costs=bad.json

# Each number of a file has a range, the whole ones that of a setting.
sed 's/"messages":\[\]/"messages":[{"transport":"shm","bytes":8,"ms":1}],"overlap":1/; s/"collectives":\[\]/"collectives":[{"kind":"all_reduce","ranks":2,"bytes":8,"ms":1}]/
  s/"version"/"peak_tflops":1,&/; s/"ms_per_element":/"norm_ms_per_element":1,&/; s/"microbatch":2,/"microbatch":2,"partials":1,"parameters":1,/' made.json >all.json
"$gen" --check --costs=all.json two.cfg >out 2>err
matches "a file with all numbers is read" "$? $(complaints err)" "65 all.json: blocks[[]0].parameters: 1 were measured, *"
ranges=
for key in version sequence microbatch tensor partials parameters forward backward_input backward_weight backward recompute ms_per_element \
  norm_ms_per_element bytes ms ranks overlap peak_tflops; do
  sed "s/\"$key\":[0-9.]*/\"$key\":1e31/" all.json >bad.json
  cmp -s all.json bad.json && ranges="$ranges $key(none)"
  "$gen" --check --costs=bad.json two.cfg >out 2>err
  case "$? $(complaints err)" in
    "65 bad.json: peak_tflops = 1e31: a number from 1e-06 to 1e+09" | "65 bad.json: "*"$key = 1e31: 0, or a number from 1e-30 to 1e+30" | "65 bad.json: "*"$key = 1e31: a whole number from "*" to "*) ;;
    *) ranges="$ranges $key: $(complaints err)" ;;
  esac
done
is "each number has a range" "$ranges" ""

# ---- what a machine measures ----

ok "a binary is built" build two two.cfg --blocks
./two measure --seconds 1 --output costs.json 2>err
is "it measures, and has nothing to say" "$? $(cat err)" "0 "
is "keys" "$(sed -n 's/^  "\([a-z_]*\)":.*/\1/p' costs.json | tr '\n' ' ')" \
  "version device dtype sequence peak_tflops blocks optimizer messages collectives "
ok "the peak is above 0" awk '$1 == "\"peak_tflops\":" { above = $2 + 0 > 0 } END { exit !above }' costs.json
is "each block at each size" "$(grep '"block"' costs.json | sort | uniq -c | awk '{ print $1 }' | tr '\n' ' ')" "4 4 4 4 4 "
is "sizes" "$(sed -n 's/^ *"microbatch": \([0-9]*\),/\1/p' costs.json | sort -n | uniq | tr '\n' ' ')" "1 2 4 8 "
# times_of BLOCK MICROBATCH: F, I, W and B.
times_of() {
  awk -v block="\"$1\"," -v size="$2," '
    $1 == "\"block\":" { here = $2 == block }
    $1 == "\"microbatch\":" { sized = $2 == size }
    here && sized && /forward|backward/ { printf "%s ", $2 + 0 }' costs.json
}
one_size=$(times_of model.layers.0.mlp 1) eight=$(times_of model.layers.0.mlp 8)
is "each has four times above 0" "$(echo "$one_size" | awk '{ for (i = 1; i <= NF; i++) above += $i > 0; print above, NF }')" "4 4"
ok "eight times as much takes more than four times as long" \
  sh -c "echo $one_size $eight | awk '{ exit !(\$5 > 4 * \$1 && \$8 > 4 * \$4) }'"
ok "the optimizer takes time" sh -c "sed -n 's/.*\"ms_per_element\": \\([^,]*\\),*/\\1/p' costs.json | head -n 1 | awk '{ exit !(\$1 > 0 && \$1 < 1e-3) }'"
is "messages" "$(grep -c '"transport": "shm"' costs.json)" 6
is "collectives of both kinds" "$(grep -c '"reduce_scatter"' costs.json) $(grep -c '"all_gather"' costs.json)" "5 5"
file=costs.json
for option in "-s pipeline.ranks=1" "-s pipeline.schedule=zb_h1" "-s batch.microbatch=8 -s pipeline.stages_per_rank=2" "-s data_parallel.replicas=2"; do
  ok "its costs predict a step with $option" test -n "$(report step $option)"
done
refuses "costs.json: blocks[5].parameters: 16384 were measured, the topology's model.embed_tokens has 8192" --costs=costs.json -s model.hidden=32
# ---- a topology that penstock-plan completes ----

cat >cluster.cfg <<'END'
plan = { ranks = 8; sequences = 64; memory_mib = 100; microbatch = [2, 3]; };
model = { family = "llama"; layers = 80; hidden = 64; heads = 4; kv_heads = 2; ffn = 160; vocab = 256; sequence = 48; };
optimizer = { learning_rate = 1e-3; steps = 100; };
END
"$gen" cluster.cfg >out 2>err
matches "it has no plan" "$? $(complaints err)" "78 cluster.cfg: pipeline.ranks: missing; *penstock-plan*"
ok "but a binary that measures" build cluster cluster.cfg --blocks
ok "of one layer" sh -c './cluster info --json | grep -q "\"layers\":1,.*\"only_measures\":true"'
is "and says so" "$(./cluster info | head -n 1 | sed 's/.*, for/for/')" "for measure alone: a block of each kind"
./cluster train 2>err
is "it does not train" "$? $(complaints err)" \
  "64 penstock: this binary has the commands measure and info alone: its topology has a group plan, and no pipeline.ranks, which penstock-plan chooses"
ok "it measures the microbatches of the plan" ./cluster measure --seconds 1 --output cluster.json
is "these" "$(sed -n 's/^ *"microbatch": \([0-9]*\),/\1/p' cluster.json | sort -n | uniq | tr '\n' ' ')" "2 3 "
sed 's/^plan.*/pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; }; batch = { microbatch = 3; };/' cluster.cfg >whole.cfg
ok "the costs are for the whole model" "$gen" --check --costs=cluster.json whole.cfg
sed 's/memory_mib = 100;/& replicas = [1]; tensor = [1]; stages_per_rank = [1]; schedules = ["1f1b"]; recompute = ["none"];/' cluster.cfg >deep.cfg
ok "and for eight stages of them, of which most differ in their layers alone" "${gen%-gen}-plan" --refine=0 --costs=cluster.json deep.cfg
ok "a topology with ranks has its whole plan" build whole two.cfg --blocks
is "with all layers" "$(./whole info --json | sed 's/.*"layers":\([0-9]*\).*/\1/')" 4
"$gen" --blocks -o many.c -s pipeline.ranks=1 -s data_parallel.replicas=300 two.cfg
is "of many replicas 256 are measured, which are processes of one host" "$(grep -o 'replica_count = [0-9]*' many.c | sort -u | tr '\n' ' ')" \
  "replica_count = 1 replica_count = 256 replica_count = 300 "

ok "a binary that does not train is built" build none two.cfg --blocks -s pipeline.schedule=inference
./none measure --output none.json 2>err
is "it has nothing to measure" "$? $(complaints err)" \
  "64 penstock: measure: this binary has no plan for it: its schedule is inference; build one whose schedule trains, by make or with penstock-gen --blocks"
./two measure 2>err
is "measure needs a file" "$? $(complaints err)" "64 penstock: measure needs --output FILE: where to write the costs"
# lost FILE: its status when a process is killed.
lost() {
  ./two measure --seconds 100 --output "$1" 2>err &
  lost_command=$!
  while :; do # a process that is found may have exited since
    case $(ps -o stat= -p "$lost_command") in '' | Z*) break ;; esac
    kill -9 $(children "$lost_command") 2>/dev/null
  done
  wait "$lost_command"
}
echo kept >kept.json
lost kept.json
is "a lost process ends it, and leaves what was there" "$? $(cat kept.json)" "75 kept"
lost new.json
is "or nothing" "$? $(test -e new.json || echo none)" "75 none"
./two measure --output missing/costs.json 2>err
is "that can be made" "$? $(complaints err)" "73 penstock: --output missing/costs.json: No such file or directory"
finish
