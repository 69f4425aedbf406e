#!/bin/sh
# plan.t: penstock-plan: what it prints, that bounds leave out nothing, that the topology it writes has the step it promises, and what it
# refuses.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/costs.sh"
# without_progress OPTION...: penstock-plan without the lines that say how far it is, which depend on the machine.
without_progress() {
  "$top_builddir/penstock-plan" "$@" 2>"$scratch/messages"
  set -- $?
  sed -n '/^penstock-plan: *[0-9]*%  /!p' "$scratch/messages" >&2
  return "$1"
}
plan=without_progress

cat >"$scratch/small.cfg" <<'END'
plan = { ranks = 4; sequences = 16; memory_mib = 6; microbatch = [1, 2]; stages_per_rank = [1, 2]; };
model = { family = "llama"; layers = 8; hidden = 64; heads = 4; ffn = 160; vocab = 256; sequence = 256; };
optimizer = { learning_rate = 1e-3; steps = 10; };
cluster = { device = "cpu"; };
END

# field FILE NAME: the first number of that name in JSON.
field() { sed -n "s/^ *\"$2\": \\([-0-9.e+]*\\),*$/\\1/p" "$1" | head -1; }
# most FILE NAME: the greatest number of that name.
most() { sed -n "s/^ *\"$2\": \\([-0-9.e+]*\\),*$/\\1/p" "$1" | sort -n | tail -1; }
# counted FILE: the result without how it was found.
counted() { grep -v -e candidates_evaluated -e candidates_pruned "$1"; }
# refuses NAME STATUS PATTERN OPTION...: penstock-plan ends with a message.
refuses() {
  name=$1 status=$2 pattern=$3
  shift 3
  "$plan" "$@" >"$scratch/out" 2>"$scratch/err"
  is "$name: the status" $? "$status"
  matches "$name: the message" "$(complaints "$scratch/err")" "$pattern"
}

# ---- what it prints ----
"$plan" --refine=0 --all -p json "$scratch/small.cfg" >"$scratch/one" 2>"$scratch/err"
is "a plan is found" "$? $(complaints "$scratch/err")" "0 "
"$plan" --refine=0 --all -p json "$scratch/small.cfg" >"$scratch/two"
ok "the same again" cmp "$scratch/one" "$scratch/two"
for key in candidates_total candidates_evaluated candidates_pruned makespan arena_bytes bubble idle; do
  ok "it has $key" test -n "$(field "$scratch/one" $key)"
done
is "evaluated and pruned are all" \
  $(($(field "$scratch/one" candidates_evaluated) + $(field "$scratch/one" candidates_pruned))) "$(field "$scratch/one" candidates_total)"
is "ten candidates" "$(grep -c '"settings"' "$scratch/one")" 10
is "the first has no reason" "$(grep '"reason"' "$scratch/one" | head -1 | tr -d ' ')" '"reason":null'
is "the others have one of five" \
  "$(grep '"reason"' "$scratch/one" | sed 1d | grep -cE '"(bubble|recomputation|collectives|memory|imbalance)"')" 9
ok "costs by flops give no tokens/s" grep -q '"tokens_per_second": null' "$scratch/one"
is "the fastest come first" "$(sed -n 's/^ *"makespan": \(.*\),$/\1/p' "$scratch/one")" \
  "$(sed -n 's/^ *"makespan": \(.*\),$/\1/p' "$scratch/one" | sort -g)"
ok "none is above the limit" test "$(most "$scratch/one" arena_bytes)" -le $((6 << 20))
is "--top" "$("$plan" --refine=0 --top=3 -p json "$scratch/small.cfg" | grep -c '"settings"')" 3
"$plan" --refine=0 --all "$scratch/small.cfg" >"$scratch/table"
ok "the table has a line for each" test "$(wc -l <"$scratch/table")" -eq 13
# first FILE: the first candidate.
first() { sed -n '/"settings"/,/"reason"/p' "$1" | sed '/"reason"/q'; }
"$plan" --refine=0 --top=1 -p json "$scratch/small.cfg" >"$scratch/top"
"$plan" --refine=0 --top=1 -p json "$scratch/small.cfg" -s memory.recompute=auto >"$scratch/auto"
is "memory.recompute auto leaves the choice to the planner" "$(first "$scratch/auto")" "$(first "$scratch/top")"
"$plan" --refine=0 "$scratch/small.cfg" -s 'memory.recompute=[auto,none]' >"$scratch/out" 2>"$scratch/err"
is "but not to a part of the stages" "$? $(complaints "$scratch/err")" \
  '78 -s memory.recompute = [auto,none]: "auto" for all stages or for none, for penstock-plan'
is "the first is the same whatever --top" "$(first "$scratch/top")" "$(first "$scratch/one")"
ok "a step as long as that above is marked" sh -c "sed -n 3p '$scratch/table' | grep -q '^2  *=  .*  as fast'"
ok "others say how much slower they are" sh -c "sed -n 11p '$scratch/table' | grep -q '% slower: [a-z]'"
"$plan" --refine=0 "$scratch/small.cfg" -s plan.ranks=1 -s plan.stages_per_rank=[1] -s plan.memory_mib=64 >"$scratch/table"
ok "of one stage it has no columns of a cut and of sharding" sh -c "sed -n 1p '$scratch/table' | grep -v -e balance -e shard | grep -q recompute"

# ---- the bounds leave out nothing ----
# random SEED: a small plan, by chance.
random() {
  awk -v seed="$1" '
    function one(list,   n, of) { n = split(list, of, "|"); return of[1 + int(rand() * n)] }
    BEGIN {
      srand(seed)
      printf "plan = { ranks = %s; sequences = %s; memory_mib = %s; microbatch = %s; recompute = %s; stages_per_rank = %s;%s };\n",
        one("2|3|4|6"), one("8|12|24"), one("1|2|3|64"), one("[1]|[1, 2]|[2]"), one("[\"none\"]|[\"none\", \"full\"]|[\"attention\", \"layer\"]"),
        one("[1]|[1, 2]|[3, 2]"), one("| shard = [\"weights\", \"none\"];| reduce = [\"step\"];")
      printf "model = { family = \"%s\"; layers = %s; hidden = 32; heads = 4; ffn = 96; vocab = %s; sequence = 64; tie_embeddings = %s;%s };\n",
        one("llama|qwen3|gpt2"), one("3|5|8"), one("64|2048"), one("true|false"), one("| dtype = \"bf16\";| loss_rows = 32;")
      print "optimizer = { learning_rate = 1e-3; steps = 10; };"
      printf "cluster = { device = \"cpu\";%s };\n", one("| hosts = (\"a\"); | ")
      print one("|costs = { byte = 1e-4; };|costs = { send = 0.001; send_host = 0.002; };|costs = { overlap = 0.02; };")
    }'
}
for seed in 1 2 3 4 5; do
  random $seed >"$scratch/random.cfg"
  all=$(test $((seed % 2)) -eq 0 || echo --all)
  "$plan" --refine=0 $all -p json "$scratch/random.cfg" >"$scratch/pruned" 2>"$scratch/pruned.err"
  status=$?
  "$plan" --exhaustive $all -p json "$scratch/random.cfg" >"$scratch/all" 2>"$scratch/all.err"
  is "plan $seed by bounds is that of all candidates: the status" $? $status
  is "plan $seed by bounds is that of all candidates" "$(counted "$scratch/pruned")$(complaints "$scratch/pruned.err")" \
    "$(counted "$scratch/all")$(complaints "$scratch/all.err")"
  if test $status -eq 0; then is "plan $seed: all were evaluated" "$(field "$scratch/all" candidates_pruned)" 0; fi
done
sed 's/ranks = 4/ranks = 8/; s/memory_mib = 6/memory_mib = 16/; s/device = "cpu"/hosts = ("a", "b"); port = 2000; &/' "$scratch/small.cfg" >"$scratch/hosts.cfg"
set -- -s plan.microbatch=[2] -s 'plan.recompute=["none"]' -s costs.byte=1e-6 -s costs.byte_host=1e-5 -s costs.send=0.001 -s costs.send_host=0.1
"$plan" --refine=0 "$@" -p json "$scratch/hosts.cfg" >"$scratch/pruned"
"$plan" --exhaustive "$@" -p json "$scratch/hosts.cfg" >"$scratch/all"
is "the same on two hosts" "$(counted "$scratch/pruned")" "$(counted "$scratch/all")"
ok "which chooses a mapping" grep -q '"cluster.mapping"' "$scratch/pruned"

set -- -s plan.ranks=3 -s plan.memory_mib=64 -s 'cluster.speed=[3.0,0.5,1.5]'
"$plan" --refine=0 "$@" -p json "$scratch/small.cfg" >"$scratch/pruned"
"$plan" --exhaustive "$@" -p json "$scratch/small.cfg" >"$scratch/all"
is "the same with ranks of different speed" "$(counted "$scratch/pruned")" "$(counted "$scratch/all")"

# Tensor ranks: as many as divide the ranks, and the heads.
set -- -s plan.memory_mib=64 -s plan.microbatch=[2] -s plan.recompute=[none] -s plan.schedules=[1f1b,zero_bubble_v] -s model.layers=4
for costs in costs.byte=1e-6 costs.byte=1e-4 'cluster.speed=[0.5]'; do
  one=
  test "$costs" != costs.byte=1e-4 || one='-s tensor_parallel.sequence=false'
  test "$costs" != 'cluster.speed=[0.5]' || one='-s pipeline.ranks=1'
  "$plan" --refine=0 --top=1000 "$@" $one -s "$costs" -p json "$scratch/small.cfg" >"$scratch/pruned" 2>"$scratch/err"
  "$plan" --exhaustive --top=1000 "$@" $one -s "$costs" -p json "$scratch/small.cfg" >"$scratch/all" 2>>"$scratch/err"
  is "the same with tensor ranks, $costs" "$(counted "$scratch/pruned")$(complaints "$scratch/err")" "$(counted "$scratch/all")"
  is "of one, two and four, $costs" "$(sed -n 's/.*"tensor_parallel.ranks": \([0-9]*\),*/\1/p' "$scratch/all" | sort -u | tr '\n' ' ')" "1 2 4 "
done

# ---- candidates with different layouts ----
# layouts FILE: replicas, tensor ranks, stages, microbatch and schedule of each candidate, one a line.
layouts() {
  awk -F '[:,]' '/"(data_parallel.replicas|tensor_parallel.ranks|pipeline.stages_per_rank|batch.microbatch|pipeline.schedule)"/ { key = key $2 }
    /"makespan"/ { print key; key = "" }' "$1"
}
set -- -p json -s plan.memory_mib=64 -s plan.recompute=[none] -s plan.schedules=[1f1b,gpipe] -s plan.shard=[none,optimizer] -s plan.reduce=[step] \
  -s plan.microbatch=[1] "$scratch/small.cfg"
"$plan" --exhaustive --all --top=1000 "$@" >"$scratch/all"
"$plan" --refine=0 --top=12 "$@" >"$scratch/distinct"
is "without --all it has the best of each" "$(layouts "$scratch/distinct")" "$(layouts "$scratch/all" | awk '!seen[$0]++' | head -12)"
is "with its memory" "$(field "$scratch/distinct" arena_bytes)" "$(field "$scratch/all" arena_bytes)"
"$plan" --exhaustive --distinct --top=12 "$@" >"$scratch/all"
is "which is the same by all candidates" "$(counted "$scratch/distinct")" "$(counted "$scratch/all")"

# ---- the topology ----
# keeps NAME OPTION...: penstock-gen has the step and the memory of the first candidate for the topology of -o, by the costs of $file too.
file=
keeps() {
  name=$1
  shift
  "$plan" --top=1 "$@" ${file:+"--costs=$file"} -p json -o "$scratch/best.cfg" >"$scratch/found" 2>"$scratch/err"
  "$gen" -p report ${file:+"--costs=$file"} "$scratch/best.cfg" >"$scratch/report" 2>>"$scratch/err"
  is "$name: the step" "$(field "$scratch/report" makespan)" "$(field "$scratch/found" makespan)"
  is "$name: the memory" "$(most "$scratch/report" placed_bytes)" "$(field "$scratch/found" arena_bytes)"
}
keeps "by a named schedule" --refine=0 "$scratch/small.cfg"
ok "it has no group plan" sh -c "! grep -q '^plan' '$scratch/best.cfg'"
first=$(field "$scratch/found" makespan)
keeps "by the search" --seconds=1 "$scratch/small.cfg" -s data_parallel.replicas=1 -s plan.tensor=[1]
ok "meanwhile it says how far it is" grep -q '^penstock-plan: *[0-9]*%  [a-z]*: [0-9]* candidates, [0-9]* evaluated$' "$scratch/messages"
ok "the search found a better order" grep -q 'schedule = "search"' "$scratch/best.cfg"
"$plan" --refine=0 -p json "$scratch/small.cfg" -s data_parallel.replicas=1 -s plan.tensor=[1] >"$scratch/named"
ok "which is faster" awk -v a="$(field "$scratch/found" makespan)" -v b="$(field "$scratch/named" makespan)" 'BEGIN { exit !(a < b) }'
sed 's/sequence = 256/sequence = 48/; s/microbatch = \[1, 2\]/microbatch = [2, 4]/' "$scratch/small.cfg" >"$scratch/blocks.cfg"
file=$scratch/links.json
links >"$file"
keeps "by measured costs" --refine=0 "$scratch/blocks.cfg" -s data_parallel.replicas=1
named=$(field "$scratch/found" makespan)
keeps "by the search, by measured costs" --seconds=0 "$scratch/blocks.cfg" -s data_parallel.replicas=1
ok "cut, recomputation and order are chosen together" grep -q 'balance = "joint"' "$scratch/best.cfg"
ok "which is faster by measured costs" awk -v a="$(field "$scratch/found" makespan)" -v b="$named" 'BEGIN { exit !(a < b) }'
keeps "with replicas, by measured costs" --seconds=0 "$scratch/blocks.cfg" -s pipeline.ranks=2
file=
keeps "on two hosts" --refine=0 "$scratch/hosts.cfg"
ok "the plan of the topology is verified" "$gen" --check "$scratch/best.cfg"
keeps "of two tensor ranks that have all tokens" --refine=0 "$scratch/small.cfg" -s tensor_parallel.sequence=false -s plan.tensor=[2]
ok "which the topology has" sh -c "tr -d '\n' <'$scratch/best.cfg' | grep -q 'tensor_parallel = { *ranks = 2; *sequence = false;'"
ok "their plan is verified" "$gen" --check "$scratch/best.cfg"
keeps "of two tensor ranks" --refine=0 "$scratch/small.cfg" -s plan.tensor=[2]
ok "their plan is verified, too" "$gen" --check "$scratch/best.cfg"
refuses "a list for an axis that is fixed" 78 "*plan.tensor = *: not together with tensor_parallel.ranks*" \
  "$scratch/small.cfg" -s plan.tensor=[2] -s tensor_parallel.ranks=2

# ---- memory ----
refuses "nothing fits" 78 "$scratch/small.cfg: plan.memory_mib = 1: at least [0-9]*" "$scratch/small.cfg" -s plan.memory_mib=1
least=$(sed 's/.*at least //' "$scratch/err")
"$plan" --refine=0 "$scratch/small.cfg" -s plan.memory_mib="$least" >"$scratch/out"
is "that much is enough" $? 0
refuses "less is not" 78 "*at least $least" "$scratch/small.cfg" -s plan.memory_mib=$((least - 1))
refuses "nothing fits, by all candidates" 78 "*: at least $least" --exhaustive "$scratch/small.cfg" -s plan.memory_mib=1

# ---- what is fixed ----
"$plan" --refine=0 -p json "$scratch/small.cfg" -s plan.memory_mib=64 -s pipeline.ranks=2 -s pipeline.schedule=gpipe -s memory.recompute=full >"$scratch/fixed"
is "ranks are fixed" "$(grep '"pipeline.ranks"' "$scratch/fixed" | sort -u | tr -d ' ,')" '"pipeline.ranks":2'
is "so is the schedule" "$(grep '"pipeline.schedule"' "$scratch/fixed" | sort -u | tr -d ' ,')" '"pipeline.schedule":"gpipe"'
is "and the recomputation" "$(grep '"memory.recompute"' "$scratch/fixed" | sort -u | tr -d ' ,')" '"memory.recompute":"full"'
refuses "a list for what is fixed" 78 "*small.cfg:1: plan.microbatch = \[1, 2\]: not together with batch.microbatch*" "$scratch/small.cfg" -s batch.microbatch=2
refuses "no such combination" 78 "*: plan.ranks, plan.sequences: no combination of the allowed values is possible*" "$scratch/small.cfg" -s plan.sequences=7 -s plan.microbatch=[2]
refuses "too many microbatches" 78 "*: plan.ranks, plan.sequences: *there are at most 4096*" "$scratch/small.cfg" -s plan.sequences=8192 -s plan.microbatch=[1] -s plan.replicas=[1]
"$plan" --refine=0 --top=1 "$scratch/small.cfg" -s plan.sequences=4097 -s plan.microbatch=[1] -s plan.replicas=[1] -s pipeline.microbatches=4097 -s pipeline.schedule=1f1b -s plan.memory_mib=1024 >"$scratch/out"
is "unless they are set" $? 0

# ---- errors ----
refuses "an axis that does not exist" 78 "-s plan.tensors = *: there is no such setting*" "$scratch/small.cfg" -s plan.tensors=[2]
refuses "a schedule that is no choice" 78 "-s plan.schedules = *: of penstock-plan's schedules: *\"1f1b\"*" "$scratch/small.cfg" -s plan.schedules=[search]
refuses "an empty list" 78 "-s plan.shard = *: a list of at least one value" "$scratch/small.cfg" -s plan.shard=[]
grep -v '^plan' "$scratch/small.cfg" >"$scratch/none.cfg"
refuses "no group plan" 78 "$scratch/none.cfg: plan.ranks: missing; *" "$scratch/none.cfg"
{ cat "$scratch/small.cfg" && echo 'fallback = ({ pipeline = { ranks = 1; }; });'; } >"$scratch/fallback.cfg"
refuses "a fallback" 78 "$scratch/fallback.cfg: fallback: none, with the group plan*" "$scratch/fallback.cfg"
refuses "no topology" 64 "penstock-plan: TOPOLOGY.cfg is missing*"
refuses "the topology as output" 64 "penstock-plan: -o *: the same file as the topology" -o "$scratch/small.cfg" "$scratch/small.cfg"
refuses "an output that cannot be made" 73 "penstock-plan: *" --refine=0 -o "$scratch/no/such.cfg" "$scratch/small.cfg"
"$gen" "$scratch/small.cfg" >"$scratch/out" 2>"$scratch/err"
is "penstock-gen names penstock-plan: the status" $? 78
matches "penstock-gen names penstock-plan" "$(complaints "$scratch/err")" "$scratch/small.cfg: pipeline.ranks: missing; *penstock-plan*"

# ---- measured costs: the step with norm and optimizer ----
# blocks SEED ELEMENT MICROBATCH...: such a file by chance, in which ELEMENT is the time of UPDATE for an element.
blocks() {
  awk -v seed="$1" -v element="$2" -v sizes="$3" '
    function around(x) { return x * (0.5 + rand()) }
    function lists(name, key, values, least, ms,   n, of, i, size, text) {
      n = split(values, of, " ")
      for (i = 1; i <= n; i++)
        for (size = least; size <= 64 * least; size *= 8)
          text = text (text ? ", " : "") sprintf("{\"%s\": \"%s\", \"ranks\": 2, \"bytes\": %d, \"ms\": %.6g}", key, of[i], size, around(ms * size))
      printf "\"%s\": [%s]", name, text
    }
    BEGIN {
      srand(seed)
      printf "{\"version\": 2, \"device\": \"cpu\", \"dtype\": \"f32\", \"sequence\": 64, \"blocks\": ["
      n = split("model.embed_tokens model.layers.0.self_attn model.layers.0.mlp model.norm lm_head", block, " ")
      count = split(sizes, size, " ")
      for (i = 1; i <= n; i++)
        for (j = 1; j <= count; j++) {
          f = around(size[j]); b = around(size[j]); w = around(size[j])
          printf "%s{\"block\": \"%s\", \"microbatch\": %d, \"forward\": %.6g, \"backward_input\": %.6g, \"backward_weight\": %.6g, ", (i * j > 1 ? ", " : ""), block[i], size[j], f, b, w
          printf "\"backward\": %.6g, \"recompute\": %.6g}", 0.9 * (b + w), f / 2
        }
      printf "], \"optimizer\": {\"ms_per_element\": %g, \"norm_ms_per_element\": %g}, ", element, element / 3
      lists("messages", "transport", "shm ofi", 1024, rand() < 0.5 ? 1e-4 : 1e-6)
      printf ", "
      lists("collectives", "kind", "reduce_scatter all_gather", 4096, rand() < 0.5 ? 1e-4 : 1e-6)
      print "}"
    }'
}
echo '{"unit": "ms", "stages": []}' >"$scratch/stages.json"
refuses "costs of version 1" 78 "$scratch/stages.json:1: stages: costs of version 1 *penstock-NAME measure *" --costs="$scratch/stages.json" "$scratch/small.cfg"
for seed in 11 12 13; do
  random $seed | sed 's/family = "[^"]*"/family = "llama"/; s/ loss_rows = 32;//; s/ dtype = "bf16";//; s/costs = .*//; s/memory_mib = [123];/memory_mib = 8;/' >"$scratch/random.cfg"
  all=$(test $((seed % 2)) -eq 0 || echo --all)
  blocks $seed $(echo 0 1e-5 1e-3 | cut -d ' ' -f $((seed % 3 + 1))) "1 2" >"$scratch/blocks.json"
  "$plan" --refine=0 --costs="$scratch/blocks.json" $all -p json "$scratch/random.cfg" >"$scratch/pruned" 2>"$scratch/pruned.err"
  status=$?
  "$plan" --exhaustive --costs="$scratch/blocks.json" $all -p json "$scratch/random.cfg" >"$scratch/all" 2>"$scratch/all.err"
  is "by measured blocks, plan $seed by bounds is that of all candidates: the status" "$? $status" "0 0"
  is "by measured blocks, plan $seed by bounds is that of all candidates" "$(counted "$scratch/pruned")$(complaints "$scratch/pruned.err")" \
    "$(counted "$scratch/all")$(complaints "$scratch/all.err")"
done
sed 's/sequence = 256/sequence = 64/; s/memory_mib = 6/memory_mib = 64/' "$scratch/small.cfg" >"$scratch/blocks.cfg"
blocks 1 1e-3 "1 2" >"$scratch/blocks.json"
"$plan" --refine=0 --costs="$scratch/blocks.json" -p json -o "$scratch/best.cfg" "$scratch/blocks.cfg" >"$scratch/found"
"$gen" -p report --costs="$scratch/blocks.json" "$scratch/best.cfg" >"$scratch/report" 2>"$scratch/err"
for key in makespan step; do is "penstock-gen has the same $key" "$(field "$scratch/report" $key)" "$(field "$scratch/found" $key)"; done
ok "the step is longer than the makespan" awk -v a="$(field "$scratch/found" makespan)" -v b="$(field "$scratch/found" step)" 'BEGIN { exit !(a < b) }'
is "the shortest steps come first" "$(sed -n 's/^ *"step": \(.*\),$/\1/p' "$scratch/found")" "$(sed -n 's/^ *"step": \(.*\),$/\1/p' "$scratch/found" | sort -g)"
is "tokens/s are those of the step" "$(awk -v s="$(field "$scratch/found" step)" 'BEGIN { printf "%.9g", 16 * 64 / (s / 1000) }')" \
  "$(awk -v t="$(field "$scratch/found" tokens_per_second)" 'BEGIN { printf "%.9g", t }')"
is "the table has the step" "$("$plan" --refine=0 --costs="$scratch/blocks.json" "$scratch/blocks.cfg" | awk 'NR == 2 { print $2 }')" \
  "$(awk -v s="$(field "$scratch/found" step)" 'BEGIN { printf "%.6g", s }')"
# Two replicas of one rank, whose gradients are exchanged at once in both cases: they differ in the optimizer alone.
set -- --refine=0 --all --costs="$scratch/blocks.json" "$scratch/blocks.cfg" -s plan.ranks=2 -s plan.replicas=[2] -s plan.reduce=[step] \
  -s plan.microbatch=[1] -s plan.recompute=[none] -s plan.shard_ranks=[2] -s plan.stages_per_rank=[1]
"$plan" -p json "$@" -s plan.shard=[none,optimizer] >"$scratch/found"
is "who shares the optimizer is faster" "$(grep '"data_parallel.shard"' "$scratch/found" | tr -d ' ,\n')" \
  '"data_parallel.shard":"optimizer""data_parallel.shard":"none"'
is "by the same makespan" "$(grep -c "\"makespan\": $(field "$scratch/found" makespan)," "$scratch/found")" 2
is "because of what replicas share" "$(grep '"reason"' "$scratch/found" | tail -1 | tr -d ' ')" '"reason":"collectives"'
# In parts of a million: digits and ticks tell them apart.
blocks 1 1e-9 "1 2" >"$scratch/blocks.json"
"$plan" "$@" -s plan.shard=[none,optimizer] >"$scratch/table"
is "steps that are close are told apart in the table" "$(awk 'NR == 2 || NR == 3 { print $2 }' "$scratch/table" | grep -v = | sort -u | wc -l)" 2
"$plan" -p svg "$@" -s plan.shard=[none,optimizer] >"$scratch/chart.svg"
sed -n 's/.*text-anchor="end">\(.*\)<.*/\1/p' "$scratch/chart.svg" >"$scratch/ticks"
ok "and by the ticks of the chart" test "$(sort -u "$scratch/ticks" | wc -l)" -ge 3 -a "$(sort -u "$scratch/ticks" | wc -l)" -eq "$(wc -l <"$scratch/ticks")"
is "and in its list" "$(sed -n 's/.*>[12]: \(.*\), .* MiB.*/\1/p' "$scratch/chart.svg" | sort -u | wc -l)" 2

# ---- why the first is the first ----
# because OPTION...: the sentence of a plan of four ranks.
because() { "$plan" --refine=0 --top=4 "$scratch/small.cfg" -s plan.stages_per_rank=[1] -s plan.recompute=[none] -s plan.microbatch=[1] "$@" | grep '^first because '; }
set -- -s plan.memory_mib=64 -s plan.tensor=[1]
matches "it is no pipeline, which is compared with the best one" "$(because "$@" -s plan.schedules=[1f1b] -s plan.shard=[none])" \
  "first because it is no pipeline, so that no stage waits for another: * than those of candidate [234], which is *% slower*"
matches "also where no pipeline fits" "$(because "$@" -s plan.replicas=[4])" "first because it is no pipeline, so that no stage waits for another: no pipeline fits*"
matches "a pipeline that waits less than another" "$(because "$@" -s plan.replicas=[1] -s plan.schedules=[1f1b,zero_bubble_v] -s 'plan.stages_per_rank=[1,2]')" \
  "first because its ranks wait less for each other than those of candidate *, which is *% slower"
matches "one that takes as long with less memory" "$(because "$@" -s plan.replicas=[1] -s plan.schedules=[1f1b,gpipe] -s plan.unit=[layer])" \
  "first because of the 2 that take as long it needs the least memory"
for print in json svg; do is "--print=$print has it, too" "$("$plan" --refine=0 --top=1 -p $print "$@" -s pipeline.ranks=4 "$scratch/small.cfg" | grep -c '[>"]first because ')" 1; done

# ---- the chart ----
"$plan" --refine=0 --all -p svg "$scratch/small.cfg" -s plan.tensor=[1] >"$scratch/chart.svg"
is "the chart has a dot for each" "$(grep -c '<circle' "$scratch/chart.svg")" 10
ok "the Pareto front is marked" grep -q 'class="pareto"' "$scratch/chart.svg"
ok "it says what it shows" grep -q '>small: the best 10 of [0-9]* candidates for 4 ranks of 6 MiB<' "$scratch/chart.svg"
is "the list has what all have in common once" "$(grep -c '>all: .*recompute layer' "$scratch/chart.svg") $(grep -c '>[0-9]*: .*recompute' "$scratch/chart.svg")" "1 0"
if command -v xmllint >/dev/null; then
  ok "xmllint reads the chart" xmllint --noout "$scratch/chart.svg"
elif command -v python3 >/dev/null; then
  ok "Python reads the chart" python3 -c 'import sys, xml.dom.minidom as m; m.parse(sys.argv[1])' "$scratch/chart.svg"
else
  skip "a parser reads the chart" "neither xmllint nor python3 is here"
fi
finish
