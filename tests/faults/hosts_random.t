#!/bin/sh
# hosts_random.t: random faults of runs over 2 to 4 emulated hosts, at random instants, and a table of how they end and how long it takes:
#
#   make check TESTS=tests/faults/hosts_random.t [FAULT_RUNS=200] [FAULT_SEED=1]     (about 5 s a run; the table is in tests/faults/hosts_random.log)
#
# Not part of make check. Each run saves checkpoints, and passes when all commands end as docs/contracts.md section 10 says, each with a line
# for each culprit, nothing is left on the hosts, and the last checkpoint is whole. The times are from the fault to the first line and to
# the end of the last command that lives.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
support=$top_srcdir/tests/support
case $support in /*) ;; *) support=$PWD/$support ;; esac
runs=${FAULT_RUNS:-200} seed=${FAULT_SEED:-1}
prepare_hosts
all="-s cluster.port=$port -s cluster.bind=none"
build on2 "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2] &&
  build on3 "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2,host3] -s pipeline.ranks=3 &&
  build on4 "$scratch/llama.cfg" $all -s cluster.hosts=[host1,host2,host3,host4] || skip_all "no plan is built"
run=$scratch/run timeout_s=3

# draw RUN: prints KIND COUNT START FAULTS, STATUSES of hosts, how many SECONDS the kind may take, and then for each culprit HOSTS|TEXT: which commands
# print a line with that text. A part that is cut off from the first host knows that host alone.
draw() {
  awk -v seed="$seed" -v run="$1" '
    function pick(n) { return int(rand() * n) + 1 }
    function except(host, other,   i, list) { for (i = 1; i <= count; i++) if (i != host && i != other) list = list i; return list }
    function culprit(hosts, text) { culprits = culprits " " hosts "|" text }
    function one_lost(host, text) { culprit(except(host), text) }
    BEGIN {
      srand((seed * 100003 + run) % 2147483647); rand() # mawk starts alike from all greater numbers.
      split("rank stop_rank host two_ranks two_hosts stop two_stopped unplug cut part", kinds)
      do {
        kind = kinds[pick(10)]; count = pick(3) + 1; a = pick(count); do { b = pick(count) } while (b == a)
        if (a > b) { c = a; a = b; b = c }
      } while ((count == 2 && kind ~ /two_hosts|two_stopped|part/) || (count == 3 && kind == "part"))
      for (i = 1; i <= count; i++) status[i] = 75
      most = 0.5; per = count == 2 ? 2 : 1; index_of = pick(per) - 1
      if (kind == "rank" || kind == "stop_rank") {
        faults = kind ":host" a ":" index_of
        culprit(except(0), "rank_" ((a - 1) * per + index_of) "_(.*host_host" a ")_lost:_" (kind == "rank" ? "signal_9" : "stopped"))
      } else if (kind == "two_ranks") {
        faults = "rank:host" a ":0,rank:host" b ":0"
        culprit(except(0), "rank_" ((a - 1) * per) "_(.*host_host" a ")_lost:_signal_9")
        culprit(except(0), "rank_" ((b - 1) * per) "_(.*host_host" b ")_lost:_signal_9")
      } else if (kind == "host") {
        faults = "host:host" a; status[a] = 137; one_lost(a, "host_host" a ")_lost:_host_host" a "_lost")
      } else if (kind == "two_hosts" || kind == "two_stopped") {
        word = kind == "two_hosts" ? "host" : "stop"
        if (word == "host") status[a] = status[b] = 137; else most = 3
        faults = word ":host" a "," word ":host" b
        culprit(except(a, b), "host_host" a ")_lost:_host_host" a "_lost")
        if (a != 1) culprit(except(a, b), "host_host" b ")_lost:_host_host" b "_lost")
      } else if (kind == "stop") {
        faults = "stop:host" a; most = 3; one_lost(a, "host_host" a ")_lost:_host_host" a "_lost")
      } else if (kind == "unplug") {
        faults = "unplug:host" a; most = 2.5
        if (a == 1) { for (i = 2; i <= count; i++) { culprit(1, "host_host" i ")_lost:_link_to_host_host" i "_lost"); culprit(i, "lost:_link_to_host_host1_lost") } }
        else { one_lost(a, "host_host" a ")_lost:_link_to_host_host" a "_lost"); culprit(a, "host_host1)_lost:_link_to_host_host1_lost") }
      } else if (kind == "cut") {
        faults = "cut:host" a ":host" b; most = a == 1 ? 2.5 : 3.5
        if (a == 1) { one_lost(b, "host_host" b ")_lost:_link_to_host_host" b "_lost"); culprit(b, "host_host1)_lost:_link_to_host_host1_lost") }
        else if (b == a + 1) { culprit(except(0), "host_host" a ")_lost:_link_to_host_host" b "_lost") }
        else { kind = "cut_unused"; faults = "rank:host" a ":0,cut:host" a ":host" b; most = 0.5; culprit(except(0), "rank_" ((a - 1) * per) "_(.*host_host" a ")_lost:_signal_9") }
      } else {
        faults = "part:host3,part:host4"; most = 2.5
        culprit(12, "host_host3)_lost:_link_to_host_host3_lost"); culprit(12, "host_host4)_lost:_link_to_host_host4_lost")
        culprit(34, "host_host1)_lost:_link_to_host_host1_lost")
      }
      for (i = 1; i <= count; i++) statuses = statuses (i > 1 ? "," : "") status[i]
      printf "%s %d %.3f %s %s %s%s\n", kind, count, rand() * 1.5, faults, statuses, most, culprits
    }'
}

# judge KIND COUNT START FAULTS STATUSES MOST CULPRIT...: prints what is wrong with the run.
judge() {
  judge_count=$2 judge_statuses=$5
  shift 6
  got=$(cat "$run"/status.? | tr '\n' ',')
  test "$got" = "$judge_statuses," || echo "statuses $got not $judge_statuses"
  test ! -s "$run/left" || echo "left: $(tr '\n' ';' <"$run/left")"
  for judge_host in $(seq "$judge_count"); do
    lines=0
    for culprit; do
      case ${culprit%%|*} in
        *$judge_host*)
          lines=$((lines + 1))
          grep -q "$(echo "${culprit#*|}" | tr _ ' ')" "$run/err.$judge_host" || echo "host$judge_host does not name: $culprit"
          ;;
      esac
    done
    has=$(grep -c ' lost: ' "$run/err.$judge_host")
    test $lines -eq 0 || test "$has" -eq $lines || echo "host$judge_host prints $has lines, not $lines"
  done
  latest=$run/ckpt/latest
  test ! -e "$run/ckpt" || test ! -L "$latest" || { test -s "$latest/manifest.json" && test -s "$latest/model.safetensors"; } || echo "the checkpoint is torn"
}

: >"$scratch/table"
cd "$scratch" || exit 1
for number in $(seq "$runs"); do
  set -- $(draw "$number")
  rm -rf "$run"
  mkdir "$run"
  cp "on$2" "$run/binary"
  timeout 300 sh "$support/hosts.sh" "$2" sh "$support/fault_run.sh" "$run" "$2" binary "$(echo "$4" | tr , ' ')" "$3" \
    --data data.bin --seed 7 --timeout $timeout_s --checkpoint "$run/ckpt" --save-every 3 --steps 1000000 2>"$scratch/noise"
  judge "$@" >"$scratch/wrong"
  named=$(complaints "$run"/err.? | grep ' lost: ' | sort -n | sed 's/ .*//;q')
  ended=$(for host in $(seq "$2"); do case $(cat "$run/status.$host") in 137) ;; *) cat "$run/end.$host" ;; esac; done | sort -n | tail -n 1)
  echo "$1 $6 $(test -s "$scratch/wrong" && echo 1 || echo 0) ${named:-99} ${ended:-99}" >>"$scratch/table"
  ok "$number: $4 on $2 hosts after $3 s: named after ${named:-?} s, ended after ${ended:-?} s" test ! -s "$scratch/wrong"
  if test -s "$scratch/wrong"; then
    sed 's/^/# /' "$scratch/wrong"
    for host in $(seq "$2"); do sed "s/^/#   host$host: /" "$run/err.$host"; done
  fi
done
sort -k1,1 -k4,4n "$scratch/table" | awk '
  function line() { if (n) printf "# %-12s %5d %7d %8s %8.3f %8.3f %8.3f %8.3f\n", kind, n, wrong, most, named[1], named[int((n + 1) / 2)], named[n], ended }
  BEGIN { printf "# %-12s %5s %7s %8s %8s %8s %8s %8s\n", "fault", "runs", "wrong", "limit s", "first", "median", "last", "end" }
  $1 != kind { line(); kind = $1; n = wrong = ended = 0; most = $2 }
  { wrong += $3; named[++n] = $4; if ($5 > ended) ended = $5 }
  END { line() }'
finish
