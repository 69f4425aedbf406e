#!/bin/sh
# tensor_fallback.t: a run with tensor ranks that has lost a host goes on with a plan of another number of tensor ranks, to the bits of an
# undisturbed one: with fewer, with more, with as many and fewer stages; from copies in memory, whose splits go to other tensor ranks, and from the
# checkpoint.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/lose_hosts.sh"

# ranks T [K]: the settings.
ranks() { echo "tensor_parallel = { ranks = $1; splits = ${2-4}; };"; }
kv_heads=4 vocab=257 # the last split has fewer tokens
one='{ tensor_parallel = { ranks = 1; }; }'

model two_one 2 '' "$one" "$(ranks 2)"
model four_two 2 'dtype = "bf16"' '{ tensor_parallel = { ranks = 2; }; }' "$(ranks 4)"
model one_two 2 '' '{ pipeline = { ranks = 1; }; tensor_parallel = { ranks = 2; }; cluster = { ranks_per_host = 2; }; }' "$(ranks 1)"
model fewer_stages 2 '' '{ pipeline = { ranks = 1; stages_per_rank = 2; schedule = "zero_bubble_v"; }; }' "$(ranks 2)"
model shards 2 'dtype = "bf16"' '{ pipeline = { ranks = 1; }; tensor_parallel = { ranks = 1; }; }' \
  "$(ranks 2 2) data_parallel = { replicas = 2; shard = \"weights\"; };"

# Three hosts, then two, then one.
describe_run down 3 '("host1", "host2", "host3")' "" \
  '{ pipeline = { ranks = 4; }; tensor_parallel = { ranks = 1; }; }, { pipeline = { ranks = 1; }; tensor_parallel = { ranks = 4; }; cluster = { ranks_per_host = 4; }; }'
for file in down down_1; do ranks 2 >>"$scratch/$file.cfg"; done
build_run down
lose "two of three, from memory" down 3 "host2 host1" "137 137 0" --restarts 2 --recover-every 1
recovers "two of three, from memory" down memory "1 2"
lose "two of three, from checkpoint" down 3 "host3 host1" "137 0 137" --restarts 2 --save-every 4
recovers "two of three, from checkpoint" down checkpoint "1 2"

# ---- what is said ----
matches "info names the tensor ranks" "$("$scratch/down" info)" "*
fallback 1    1f1b, 4 ranks of 1 stages on 2 hosts, *
fallback 2    1f1b, 1 ranks of 1 stages and 4 tensor ranks on 1 hosts, *"
matches "in JSON too" "$("$scratch/down" info --json)" '*"fallbacks":\[{"ranks":4,*,"tensor_ranks":1,*},{"ranks":1,*,"tensor_ranks":4,*}\],*'
sed -i 's/tensor_parallel = { ranks = 4; };/tensor_parallel = { ranks = 8; };/' "$scratch/down.cfg"
fails "more tensor ranks than splits" 78 'tensor_parallel.splits = 4, in fallback 2: a power of two, at least tensor_parallel.ranks = 8' \
  "$gen" --check "$scratch/down.cfg"
sed -i 's/tensor_parallel = { ranks = 8; };/tensor_parallel = { splits = 2; };/' "$scratch/down.cfg"
fails "another number of splits" 78 'tensor_parallel.splits = 2, in fallback 2: a fallback may change ' "$gen" --check "$scratch/down.cfg"
finish
