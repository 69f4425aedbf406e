#!/bin/sh
# binding.t: cluster.bind and info --bindings: the cores of each rank.
. "${top_srcdir:-.}/tests/support/lib.sh"
describe llama 4 ""
case_of() { ok "$1: a plan is built" build "$1" "$scratch/llama.cfg" -s pipeline.ranks=2 -s pipeline.microbatches=4 -s cluster.bind="$2"; }
# The cores that this test may use, and the first two.
cores=$(for part in $(taskset -cp $$ | sed 's/.*: //' | tr ',' ' '); do seq "${part%-*}" "${part#*-}"; done)
first=$(echo "$cores" | sed -n 1p)
second=$(echo "$cores" | sed -n 2p)
test -n "$second" || skip_all "one core"
both="$first,$second"
bindings() { taskset -c "$1" "$scratch/$2" info --bindings | cut -d' ' -f1,3 | tr '\n' ' '; }

case_of auto auto
is "auto: a core for each rank" "$(bindings "$both" auto | tr ' ' '\n' | sed -n '2p;4p' | sort -n | tr '\n' ' ')" "$first $second "
is "auto: all cores where there are too few" "$(bindings "$first" auto)" "0 $first 1 $first "
is "the host is named" "$("$scratch/auto" info --bindings | cut -d' ' -f2 | sort -u)" "$(uname -n)"
case_of core core
# Of a machine with too few cores info shows what the ranks would have elsewhere.
elsewhere() {
  is "$1: info: the cores of a machine that has enough" "$(taskset -c "$first" "$scratch/$1" info --bindings 2>"$scratch/err" | cut -d' ' -f1,3 | tr '\n' ' ')" "$2"
  matches "$1: info: which is said" "$(complaints "$scratch/err")" "penstock: this machine has fewer cores than the ranks need: *"
}
elsewhere core "0 0 1 1 "
train_step() { taskset -c "$1" "$scratch/$2" train --data "$scratch/data.bin" --steps 1 --quiet 2>"$scratch/err"; }
make_tokens "$scratch/data.bin" 2000
train_step "$first" core
is "core: too few are refused" $? 64
is "core: and the host is named" "$(complaints "$scratch/err")" \
  "penstock: host $(uname -n): cluster.bind = \"core\": its ranks need 2 cores, and this command may use 1; with cluster.bind = \"none\" they share cores"
case_of list "[$second,$first]"
is "list: the cores of the list" "$(bindings "$both" list)" "0 $second 1 $first "
elsewhere list "0 $second 1 $first "
train_step "$first" list
is "list: others are refused" $? 64
is "list: by name" "$(complaints "$scratch/err")" "penstock: host $(uname -n): cluster.bind has core $second, and this command may use $first"
case_of none none
is "none: all cores" "$(bindings "$first" none)" "0 $first 1 $first "
case_of numa numa
ok "numa: each rank has cores" test "$("$scratch/numa" info --bindings | grep -c '^[01] [^ ]* [0-9]')" = 2

# Several threads: as many cores for each rank, or it does not start, unless ranks may share cores.
threads_case() { ok "$1: a plan is built" build "$1" "$scratch/llama.cfg" -s cluster.threads_per_rank="$2" -s cluster.bind="$3"; }
threads_case threads 2 auto
is "threads: a core for each" "$(bindings "$both" threads | tr '-' ',')" "0 $first,$second "
elsewhere threads "0 0-1 "
train_step "$first" threads
is "threads: too few are refused" $? 64
is "threads: and the host is named" "$(complaints "$scratch/err")" \
    "penstock: host $(uname -n): cluster.threads_per_rank = 2: its ranks need 2 cores, and this command may use 1; with cluster.bind = \"none\" they share cores"
threads_case threads_list 2 "[$second,$first]"
is "threads: the cores of the list" "$(bindings "$both" threads_list | tr '-' ',')" "0 $first,$second "
threads_case threads_none 3 none
ok "threads: with none they share" train_step "$first" threads_none
bound() { # NAME: the cores of the threads of a running rank
  "$scratch/$1" train --data "$scratch/data.bin" --steps 100000000 --quiet --log "$scratch/log" 2>/dev/null &
  parent=$!
  await_steps "$scratch/log" 2
  for thread in /proc/$(children $parent | sed -n 1p)/task/*; do taskset -cp "${thread##*/}"; done | sed 's/.*: //' | sort | tr '\n' ' '
  kill -TERM $parent
  wait $parent
  rm -f "$scratch/log"
}
is "threads: each is bound to one" "$(bound threads_list)" "$(printf '%s\n' "$first" "$second" | sort | tr '\n' ' ')"

# Those of a fallback are refused before a run depends on it; where they share cores, they sleep when they wait, as those of the plan itself.
fallback_case() { # NAME SETTINGS: of the cluster, in the fallback
  { cat "$scratch/llama.cfg" && echo "cluster = { bind = \"none\"; }; fallback = ( { cluster = { $2 }; } );"; } >"$scratch/$1.cfg"
  ok "$1: a plan with a fallback is built" build "$1" "$scratch/$1.cfg"
}
fallback_case fallback 'threads_per_rank = 2; bind = "auto";'
ok "threads of a fallback: without restarts they do not matter" train_step "$first" fallback
taskset -c "$first" "$scratch/fallback" train --data "$scratch/data.bin" --steps 1 --quiet --restarts 1 2>"$scratch/err"
is "threads of a fallback: too few cores are refused at the start" $? 64
is "threads of a fallback: it is named" "$(complaints "$scratch/err")" \
  "penstock: host $(uname -n): cluster.threads_per_rank = 2, in fallback 1: its ranks need 2 cores, and this command may use 1; with cluster.bind = \"none\" they share cores"
taskset -c "$both" "$scratch/fallback" train --data "$scratch/data.bin" --steps 1 --quiet --restarts 1
is "threads of a fallback: enough are not" $? 0
fallback_case fallback_none 'threads_per_rank = 2;'
"$scratch/fallback_none" train --data "$scratch/data.bin" --steps 100000000 --quiet --log "$scratch/log" 2>/dev/null &
parent=$!
await_steps "$scratch/log" 2
is "threads of a fallback that share cores sleep soon" "$(tr '\0' '\n' <"/proc/$parent/environ" | grep GOMP_SPINCOUNT)" "GOMP_SPINCOUNT=5000"
kill -TERM $parent
wait $parent
rm -f "$scratch/log"

# What a rank says that it may use is what the kernel says.
case_of run "[$second,$first]"
"$scratch/run" train --data "$scratch/data.bin" --steps 100000000 --quiet --log "$scratch/log" 2>/dev/null &
parent=$!
await_steps "$scratch/log" 2
is "the ranks are bound" "$(for rank in $(children $parent); do taskset -cp "$rank"; done | sed 's/.*: //' | tr '\n' ' ')" "$second $first "
kill -TERM $parent
wait $parent
finish
