#!/bin/sh
# fallback_settings.t: what a topology may say of its fallbacks, the messages about what it may not, and the views of them.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 1

# write FALLBACK [SETTINGS] [PIPELINE]: t.cfg, for three hosts and a spare.
write() {
  cat >t.cfg <<END
model = { family = "llama"; layers = 8; hidden = 32; heads = 4; ffn = 48; vocab = 64; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 10; };
pipeline = { ranks = 6; microbatches = 8; ${3-schedule = \"1f1b\";} };
cluster = { hosts = ("a", "b", "c"); spares = ("d"); port = 7000; };
${2-}
fallback = $1;
END
}
# refused NAME MESSAGE FALLBACK [SETTINGS] [PIPELINE]: with 78 and this line.
refused() {
  refused_name=$1 refused_line=$2
  shift 2
  write "$@"
  "$gen" --check t.cfg >out 2>err
  is "$refused_name is refused" "$? $(complaints err)" "78 $refused_line"
}
may="a fallback may change pipeline.ranks, pipeline.stages_per_rank, pipeline.schedule, tensor_parallel.ranks, tensor_parallel.sequence, partition, memory and cluster, except cluster.device, port and spares"
list='a list of at most 16 groups of settings, as in ( { pipeline = { ranks = 2; }; } )'

refused "a number" "t.cfg:7: fallback = 3: $list" 3
refused "a group" "t.cfg:7: fallback = { pipeline = { ranks = 2; }; }: $list" '{ pipeline = { ranks = 2; }; }'
refused "a list of numbers" "t.cfg:7: fallback = ( 2, 1 ): $list" '( 2, 1 )'
refused "an unknown group" "t.cfg:7: fallback 1: pipelin: did you mean pipeline?" '( { pipelin = { ranks = 2; }; } )'
refused "a setting as a group" "t.cfg:7: fallback 1: pipeline: a group of settings" '( { pipeline = 2; } )'
refused "an unknown setting" "t.cfg:7: pipeline.rank = 2, in fallback 1: did you mean pipeline.ranks?" '( { pipeline = { rank = 2; }; } )'
refused "a wrong value" "t.cfg:7: pipeline.ranks = 0, in fallback 1: a whole number from 1 to 4096" '( { pipeline = { ranks = 0; }; } )'
refused "a wrong value of the second" "t.cfg:8: pipeline.ranks = \"one\", in fallback 2: a whole number from 1 to 4096" '( { pipeline = { ranks = 2; }; },
  { pipeline = { ranks = "one"; }; } )'
refused "the same setting twice" "t.cfg:7: pipeline.ranks = 3: given before, at t.cfg:7" '( { pipeline = { ranks = 2; }; }, { pipeline = { ranks = 2; ranks = 3; }; } )'
for setting in 'pipeline microbatches = 4' 'pipeline warmup = 2' 'model layers = 3' 'optimizer steps = 3' 'batch microbatch = 2' 'data_parallel replicas = 2' \
  'costs forward = 2'; do
  group=${setting%% *} value=${setting#* }
  refused "$group.$value" "t.cfg:7: $group.$value, in fallback 1: $may" "( { $group = { $value; }; } )"
done
refused "another port" "t.cfg:7: cluster.port = 7001, in fallback 1: 7000, as in the topology: the hosts meet there before they know which plan they run" \
  '( { cluster = { port = 7001; }; } )'
refused "another device" "t.cfg:7: cluster.device = \"cuda\", in fallback 1: \"cpu\", as in the topology: on another kind of device a run has other bits" \
  '( { cluster = { device = "cuda"; }; } )'
refused "other spares" "t.cfg:7: cluster.spares = [], in fallback 1: [\"d\"], as in the topology: hosts that a fallback does not need wait, whichever they are" \
  '( { cluster = { spares = []; }; } )'
refused "another order of backwards" 't.cfg:7: pipeline.schedule = "gpipe", in fallback 1: one that runs the backwards of each stage in the same order of microbatches as that of the topology, 1f1b, so that the run has the same bits' \
  '( { pipeline = { ranks = 2; schedule = "gpipe"; }; } )'
refused "the same the other way round" 't.cfg:7: pipeline.schedule = "1f1b", in fallback 1: one that runs the backwards of each stage in the same order of microbatches as that of the topology, looped_bfs, so that the run has the same bits' \
  '( { pipeline = { ranks = 2; schedule = "1f1b"; }; } )' '' 'schedule = "looped_bfs";'
refused "a schedule that does not train" 't.cfg:7: pipeline.schedule = "inference", in fallback 1: one that trains' '( { pipeline = { schedule = "inference"; }; } )'
refused "of one that does not train" 't.cfg:4: pipeline.schedule = "inference": one that trains, since there is a fallback' \
  '( { pipeline = { ranks = 2; }; } )' '' 'schedule = "inference";'
refused "more hosts than there are" "t.cfg: cluster.ranks_per_host = 2, in fallback 1: at least 3: the 9 ranks x replicas have 4 hosts, spares included" '( { pipeline = { ranks = 9; }; } )'
refused "a list for other stages" "t.cfg:7: partition.layers = [3, 3], in fallback 1: a list of 3 counts, one a stage; this one has 2" \
  '( { pipeline = { ranks = 3; }; partition = { layers = [3, 3]; }; } )'
refused "one that is not replaced" "t.cfg:6: partition.layers = [1,1,1,1,2,2], in fallback 1: a list of 3 counts, one a stage; this one has 6" \
  '( { pipeline = { ranks = 3; }; } )' 'partition = { layers = [1,1,1,1,2,2]; };'
refused "a mapping that gives a host too many ranks" "t.cfg:7: cluster.mapping = [0,0,0,1], in fallback 1: each of 2 hosts 1 to 2 times, not host 0 3 times" \
  '( { pipeline = { ranks = 4; }; cluster = { mapping = [0,0,0,1]; }; } )'
write '( { pipeline = { ranks = 2; }; } )'
"$gen" --check -s 'fallback=1' t.cfg 2>err
is "no override changes them" $? 78

# ---- what is allowed ----
# fallbacks FALLBACK...: the report's ranks, stages, schedule and hosts of each.
fallbacks() {
  write "$@"
  "$gen" --print=report t.cfg 2>err | sed -n '/"fallbacks"/,$p' | sed -n 's/.*"\(ranks\|stages_per_rank\|schedule\|hosts\)": "*\([^",]*\)"*,*/\2/p' | tr '\n' ' '
}
is "without fallbacks the report has none" "$(fallbacks '( )')" ""
is "as many hosts as the ranks need" "$(fallbacks '( { pipeline = { ranks = 3; }; }, { pipeline = { ranks = 2; }; } )')" "3 1 1f1b 2 2 1 1f1b 1 "
is "more ranks on a host" "$(fallbacks '( { cluster = { ranks_per_host = 3; }; }, { cluster = { ranks_per_host = 6; }; } )')" "6 1 1f1b 2 6 1 1f1b 1 "
is "hosts say how many" "$(fallbacks '( { cluster = { hosts = ("x"); }; }, { pipeline = { ranks = 3; }; cluster = { hosts = ("x", "y"); }; } )')" "6 1 1f1b 1 3 1 1f1b 2 "
is "a spare counts as a host" "$(fallbacks '( { pipeline = { ranks = 8; }; } )')" "8 1 1f1b 4 "
is "another schedule with its own placement" "$(fallbacks '( { pipeline = { ranks = 2; stages_per_rank = 2; schedule = "zero_bubble_v"; }; } )' '' \
  'schedule = "1f1b"; warmup = 1; placement = "loop";')" "2 2 zero_bubble_v 1 "
is "what it may only repeat" "$(fallbacks '( { pipeline = { ranks = 2; }; cluster = { device = "cpu"; port = 7000; spares = ("d"); }; } )')" "2 1 1f1b 1 "
is "the device that the topology resolves to" "$(fallbacks '( { pipeline = { ranks = 2; }; cluster = { device = "auto"; }; } )')" "2 1 1f1b 1 "
is "an interface of its own" "$(fallbacks '( { pipeline = { ranks = 4; }; cluster = { interface = "net1"; }; } )')" "4 1 1f1b 2 "
is "costs for other stages do not hold" "$(fallbacks '( { pipeline = { ranks = 2; }; } )' 'costs = { forward = [1,2,1,2,1,2]; overlap = 3; };')" "2 1 1f1b 1 "
is "recomputation, and partition" "$(fallbacks '( { pipeline = { ranks = 2; }; partition = { layers = [2,6]; }; memory = { recompute = "full"; }; } )')" "2 1 1f1b 1 "
write '( { pipeline = { ranks = 2; }; } )'
digest() { "$gen" --print=report t.cfg | grep '"digest"'; }
first=$(digest)
write '( { pipeline = { ranks = 2; }; memory = { extra_receive_buffers = 0; }; } )'
ok "the digest covers them" test "$first" != "$(digest)"
same=$(digest)
former="t.cfg:7: memory.spare_slots = 0: warning: the name of this setting is now memory.extra_receive_buffers"
write '( { pipeline = { ranks = 2; }; memory = { spare_slots = 0; }; } )'
is "so it does by the former name of a setting" "$(digest 2>err)" "$same"
is "which prints a warning" "$(head -n 1 err)" "$former"
refused "with both names it" "$former
t.cfg:7: memory.extra_receive_buffers = 0: not together with memory.spare_slots, which is the same setting" \
  '( { pipeline = { ranks = 2; }; memory = { spare_slots = 0; extra_receive_buffers = 0; }; } )'
refused "splits by their former name" "t.cfg:7: tensor_parallel.partials = 2, in fallback 1: $may" \
  '( { pipeline = { ranks = 2; }; tensor_parallel = { partials = 2; }; } )'
write '( { pipeline = { ranks = 3; }; }, { pipeline = { ranks = 2; }; } )' 'data_parallel = { replicas = 2; };'
ok "plans with fallbacks are compiled" build t t.cfg
matches "info names them" "$(./t info)" "*
fallback 1    1f1b, 3 ranks of 1 stages on 2 hosts, makespan *, up to * bytes a rank
fallback 2    1f1b, 2 ranks of 1 stages on 1 hosts, makespan *, up to * bytes a rank
*"
matches "in JSON too" "$(./t info --json)" '*"fallbacks":\[{"ranks":3,"stages_per_rank":1,"schedule":"1f1b","hosts":2,"makespan":*,"arena_bytes":*},{"ranks":2,*}\],*'
make_secret secret
make_tokens data.bin 2000
a_host="64 penstock: --restarts 1: this binary has fallbacks, which need one command a host (--host NAME), not one a rank"
./t train --data data.bin --restarts 1 --rank 0 2>err
is "a command a rank is refused" "$? $(complaints err)" "$a_host"
RANK=1 WORLD_SIZE=12 ./t train --data data.bin --restarts 1 2>err
is "by a launcher, too" "$? $(complaints err)" "$a_host"
write '( { pipeline = { ranks = 4; }; cluster = { interface = "net9"; }; } )'
ok "a fallback with an interface is compiled" build t t.cfg
./t train --data data.bin --restarts 1 --host a 2>err
is "which must be there at the start" "$? $(complaints err)" "64 penstock: cluster.interface = \"net9\": no network interface or address of this host"
finish
