#!/bin/sh
# secret.t: with several hosts, commands prove that they know the run's secret, and the control port refuses everything else without harm to
# the run. The two "hosts" are this one, each with a control memory of its own.
. "${top_srcdir:-.}/tests/support/lib.sh"
test -n "$OFI_ARCHIVES" || skip_all "no libfabric here"
cd "$scratch" || exit 1
make_secret "$scratch/secret"
port=$((20000 + $$ % 12000))
cat >two.cfg <<END
model = { family = "mlp"; layers = 4; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 4; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
cluster = { hosts = ("127.0.0.1", "elsewhere"); interface = "127.0.0.1"; port = $port; };
END
case $top_builddir in /*) ;; *) top_builddir=$OLDPWD/$top_builddir ;; esac
ok "a plan for two hosts is built" build two two.cfg
ok "and another" build other two.cfg -s optimizer.learning_rate=1e-2

# ---- the file ----
# refused NAME STATUS PATTERN OPTION...
refused() {
  refused_name=$1 refused_status=$2 refused_pattern=$3
  shift 3
  timeout 300 ./two train --rank 0 --steps 1 --quiet "$@" 2>err
  is "$refused_name: status" $? "$refused_status"
  matches "$refused_name: message" "$(complaints err)" "penstock: $refused_pattern"
}
(
  unset PENSTOCK_SECRET_FILE
  timeout 300 ./two train --rank 0 --steps 1 --quiet 2>err
  echo $? >status
)
is "no secret: status" "$(cat status)" 64
matches "no secret: message" "$(complaints err)" "penstock: the ranks are on several hosts: say --secret-file FILE or set PENSTOCK_SECRET_FILE*"
head -c 31 secret >short
chmod 600 short
refused "a short secret" 64 "the secret, short: fewer than 32 bytes" --secret-file short
cp secret open
chmod 640 open
refused "a secret that the group may read" 64 "the secret, open: mode 640: only its owner may read it (chmod 600)" --secret-file open
chmod 604 open
refused "a secret that all may read" 64 "the secret, open: mode 604*" --secret-file open
for mode in 620 602; do
  chmod $mode open
  refused "a secret that others may write, $mode" 64 "the secret, open: mode $mode: only its owner may write it (chmod 600)" --secret-file open
done
chmod 600 open
if chown 12345 open 2>/dev/null; then
  refused "a secret of another user" 64 "the secret, open: its owner is user 12345: it must be yours (user 0) or root's" --secret-file open
else
  skip "a secret of another user" "only root can make one"
fi
refused "no file" 66 "the secret, nothing: No such file or directory" --secret-file nothing
refused "both options" 64 "--no-secret and --secret-file exclude each other" --no-secret --secret-file secret

# ---- two commands ----
# start RANK OPTION...: a command trains; join sets status to what all exit with.
pids=
start() {
  start_rank=$1
  shift
  timeout 300 ./two train --rank "$start_rank" --seed 7 --quiet "$@" 2>"err.$start_rank" &
  pids="$pids $!"
}
join() {
  status=
  for pid in $pids; do wait "$pid"; status="$status $?"; done
  pids=
}
start 0 --log right.log
start 1
join
is "two commands with the secret train" "$status" " 0 0"
is "and say nothing" "$(complaints err.0 err.1)" ""
start 0 --no-secret
start 1 --no-secret
join
is "with --no-secret they do, too" "$status" " 0 0"
matches "and warn" "$(complaints err.0)" "penstock: --no-secret: any process that reaches the hosts of this run can take part in it"
same_run() { test "$(wc -l <"$1")" -eq 4 && test "$(log_field "$1" loss)" = "$(log_field right.log loss)"; }

# A command that is refused, then the right one.
(umask 077 && head -c 32 /dev/urandom >wrong)
start 0 --log late.log
timeout 300 ./two train --rank 1 --steps 4 --quiet --secret-file wrong 2>err
is "a command with another secret exits with 64" $? 64
matches "and says why" "$(complaints err)" "penstock: the first host, 127.0.0.1, does not know the secret of this command"
timeout 300 ./other train --rank 1 --steps 4 --quiet 2>err
is "a command with another plan exits with 76" $? 76
matches "and says why" "$(complaints err)" "penstock: rank 1 runs another plan than rank 0: their digests differ"
start 1
join
is "the run is not harmed" "$status" " 0 0"
ok "and has the right losses" same_run late.log
matches "its log names the first refusal" "$(sed -n 1p err.0)" "penstock: refused a connection from 127.0.0.1: it ended without a proof of the secret"
start 0
timeout 300 ./other train --rank 1 --steps 4 --quiet 2>err
join
is "a run that has only a command with another plan ends with 76" "$status" " 76"

MASTER_PORT=0 timeout 300 ./two train --rank 0 --steps 4 --quiet 2>err
is "port 0 is refused" "$? $(complaints err)" "64 penstock: MASTER_PORT = 0: a TCP port, 1 to 65535"

# ---- strangers ----
if ! find_python 'import sys; assert sys.version_info >= (3, 9)' python3; then
  skip "strangers at the port" "no Python here"
  finish
fi
into() { into_file=$1; shift; "$@" >"$into_file"; }
stranger() { timeout 300 "$python" "$top_srcdir/tests/commands/stranger.py" "$@"; }
case $top_srcdir in /*) ;; *) top_srcdir=$OLDPWD/$top_srcdir ;; esac
start 0 --log strange.log
ok "bytes that are no handshake are refused" stranger garbage $port
sleep 1.1 # a line about a refusal is printed once a second
ok "so is the first host's own proof" stranger reflect $port
ok "and a connection that is silent" into seconds stranger silent $port
ok "after 5 s" awk '{ print "# " $1 " s"; exit !($1 > 4.5 && $1 < 60) }' seconds
ok "forty connections are not kept" stranger flood $port
ok "random handshakes are refused" into count stranger random $port 2 1
stranger record $port recorded &
MASTER_PORT=$((port + 1)) && export MASTER_PORT
start 1
unset MASTER_PORT
join
is "the run is not harmed" "$status" " 0 0"
ok "and has the right losses" same_run strange.log
matches "a wrong proof is named" "$(complaints err.0)" "*penstock: refused a connection from 127.0.0.1: it does not know the secret of this run
*"
matches "so is silence" "$(complaints err.0)" "*penstock: refused a connection from 127.0.0.1: it has not proved the secret in time*"
ok "few lines are printed" test "$(wc -l <err.0)" -le 15
is "and no byte of a stranger" "$(LC_ALL=C tr -d '\n -~' <err.0 | wc -c)" 0
start 0 --log again.log
ok "what a command has sent is refused the second time" stranger replay $port recorded
start 1
join
is "the run is not harmed" "$status" " 0 0"
ok "and has the right losses" same_run again.log
matches "the replay is named" "$(complaints err.0)" "penstock: refused a connection from 127.0.0.1: it does not know the secret of this run"

# ---- where the first host listens ----
"$gen" --check two.cfg -s cluster.interface=lo
is "an interface is a setting" $? 0
listens() { "$gen" --check two.cfg >/dev/null; build where two.cfg "$@" && timeout 300 ./where train --rank 0 --steps 1 --quiet 2>err; }
listens -s cluster.interface='' -s 'cluster.hosts=[localhost,elsewhere]'
is "a first host that is a loopback address: status" $? 64
matches "a first host that is a loopback address: message" "$(complaints err)" "penstock: localhost is 127.0.0.1 on this host, which other hosts do not reach: *cluster.interface"
listens -s cluster.interface=nowhere0
is "an unknown interface: status" $? 64
matches "an unknown interface: message" "$(complaints err)" 'penstock: cluster.interface = "nowhere0": no network interface or address of this host'
finish
