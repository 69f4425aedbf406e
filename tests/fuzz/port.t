#!/bin/sh
# port.t: strangers at the ports of runs over two emulated hosts, under AddressSanitizer and UndefinedBehaviorSanitizer: garbage, mutated, cut and
# replayed handshakes at the control port before a run and during it, and garbage at libfabric's ports.
#
#   make check TESTS=tests/fuzz/port.t [PORT_SECONDS=600] [PORT_SEED=1]     (the counts are in tests/fuzz/port.log)
#
# Not part of make check, but a short one is: tests/commands/sanitize.t. PORT_BUILD: a folder where the runtime is built with sanitizers, else one
# is made. Runs follow each other. Each must end with the right losses, or, if garbage at libfabric's ports has broken a connection of its own, with
# 75 and a line; no sanitizer finds anything, and no byte of a stranger is printed.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
find_python 'import sys; assert sys.version_info >= (3, 9)' python3 || skip_all "no Python here"
seconds=${PORT_SECONDS:-600} seed=${PORT_SEED:-1}
flags='-g1 -Og -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
case $top_srcdir in /*) ;; *) top_srcdir=$PWD/$top_srcdir ;; esac
if test -z "${PORT_BUILD:-}"; then
  PORT_BUILD=$scratch/build
  mkdir "$scratch/source" "$PORT_BUILD"
  # A copy of the sources alone: a source folder that was built in cannot be built from elsewhere.
  (cd "$top_srcdir" && find configure configure.ac config.h.in aclocal.m4 Makefile.am Makefile.in build-aux m4 base gen runtime kernels tools tests topologies man docs \
    -name .deps -prune -o -type f ! -name '*.[ao]' ! -name .dirstamp ! -name '*.log' ! -name '*.trs' ! \( -perm -100 -size +500k \) -print |
    tar cf - -T -) | (cd "$scratch/source" && tar xf -)
  (cd "$PORT_BUILD" && unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS && "$scratch/source/configure" -q --without-cuda CC="$CC" CFLAGS="$flags" &&
    make -j2 -s penstock-gen libruntime.a $KERNEL_ARCHIVES $OFI_ARCHIVES) >"$scratch/log" 2>&1 || { tail "$scratch/log" | sed 's/^/# /'; skip_all "no sanitized build"; }
fi
top_builddir=$PORT_BUILD CFLAGS=$flags gen=$PORT_BUILD/penstock-gen
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=0
make_secret "$scratch/secret"
port=$((20000 + $$ % 12000))
# While a spare may come, the control port stays open during the run.
cat >"$scratch/two.cfg" <<END_OF_FILE
model = { family = "mlp"; layers = 4; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 4; };
pipeline = { ranks = 4; microbatches = 4; schedule = "1f1b"; };
cluster = { hosts = ("host1", "host2"); spares = ("controller"); port = $port; bind = "none"; };
END_OF_FILE
build two "$scratch/two.cfg" || skip_all "no plan is built"
cat >"$scratch/attack" <<'END_OF_FILE'
# attack FOLDER PORT STEPS SEED: one run; no attack with seed 0. Leaves status.N, err.N, log, count.
scratch=$1 port=$2 steps=$3 seed=$4
cd "$scratch" || exit 1
rm -f log err.* status.* counts
stranger() { STRANGER_HOST=$1 timeout 300 "$python" "$stranger_py" "$2" "$3" "$4" "$5" >>counts 2>/dev/null; }
start() {
  { on "host$1" env ${2:-A=} ./two train --steps "$steps" --seed 7 --quiet --log log 2>"err.$1" >&2; echo $? >"status.$1"; } &
}
start 1
if test "$seed" -ne 0; then
  stranger host1 random "$port" 1 "$seed"
  test ! -s recorded || stranger host1 replay "$port" recorded 0
  test -s recorded || { MASTER=1; STRANGER_HOST=host1 timeout 300 "$python" "$stranger_py" record "$port" recorded >/dev/null 2>&1 & }
fi
start 2 "${MASTER:+MASTER_ADDR=controller MASTER_PORT=$((port + 1))}"
until test -s log || test -s status.1; do sleep 0.05; done
while test "$seed" -ne 0 && ! test -s status.1; do
  seed=$((seed + 1))
  attacks=
  stranger host1 random "$port" 2 "$seed" & attacks=$!
  for host in host1 host2; do
    for open in $(on $host awk '$4 == "0A" { split($2, a, ":"); print a[2] }' /proc/net/tcp); do
      open=$(printf '%d' "0x$open")
      test "$open" -eq "$port" || { stranger $host fabric "$open" 2 "$seed" & attacks="$attacks $!"; }
    done
  done
  for pid in $attacks; do wait "$pid"; done
done
until test -s status.1 && test -s status.2; do sleep 0.05; done
END_OF_FILE
export python stranger_py="$top_srcdir/tests/commands/stranger.py"
attack() { timeout 300 sh "$top_srcdir/tests/support/hosts.sh" 2 sh "$scratch/attack" "$scratch" "$port" "$@"; }
before=$(date +%s%N)
attack 200 0
is "an undisturbed run ends well" "$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')" "0 0 "
steps=$(awk -v ns=$(($(date +%s%N) - before)) -v seconds="$seconds" 'BEGIN { s = seconds < 20 ? seconds / 2 : 10; print int(200 * s * 1e9 / ns) + 200 }')
attack "$steps" 0
log_field "$scratch/log" loss >"$scratch/right"
ok "so does one of $steps steps" test "$(wc -l <"$scratch/right")" -eq "$steps"

end=$(($(date +%s) + seconds)) rounds=0 right=0 broken=0 connections=0
: >"$scratch/wrong"
while test "$(date +%s)" -lt $end; do
  rounds=$((rounds + 1))
  attack "$steps" $((seed * 1000 + rounds * 20)) 2>>"$scratch/noise"
  statuses=$(cat "$scratch/status.1" "$scratch/status.2" | tr '\n' ' ')
  log_field "$scratch/log" loss >"$scratch/got"
  said=$(wc -l <"$scratch/err.1")
  connections=$((connections + $(awk '{ s += $1 } END { print s + 0 }' "$scratch/counts")))
  if test "$statuses" = "0 0 " && cmp -s "$scratch/got" "$scratch/right"; then
    right=$((right + 1))
  elif test "$statuses" = "75 75 " && head -n "$(wc -l <"$scratch/got")" "$scratch/right" | cmp -s - "$scratch/got"; then
    broken=$((broken + 1))
    grep -h 'lost\|failed' "$scratch/err.1" "$scratch/err.2" | sed 's/^/# /' | sort -u
  else
    echo "round $rounds: statuses $statuses, $(wc -l <"$scratch/got") losses" >>"$scratch/wrong"
    grep -hv refused "$scratch"/err.? | head -n 40 >>"$scratch/wrong"
  fi
  grep -hE 'Sanitizer|runtime error' "$scratch"/err.? >>"$scratch/wrong"
  test "$(LC_ALL=C tr -d '\n -~' <"$scratch/err.1" | wc -c)" -eq 0 || echo "round $rounds: bytes of a stranger" >>"$scratch/wrong"
  test "$said" -le 100 || echo "round $rounds: $said lines" >>"$scratch/wrong"
done
echo "# $rounds runs, $connections connections of strangers: $right runs ended with the right losses, $broken with 75"
ok "the runs are not harmed" test ! -s "$scratch/wrong"
sed 's/^/# /' "$scratch/wrong"
ok "most of them end well" test $((2 * right)) -gt $rounds
finish
