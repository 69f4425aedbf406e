#!/bin/sh
# slurm.sh: Slurm over emulated hosts: hosts.sh COUNT slurm.sh COUNT CORES COMMAND...
#
# Runs COMMAND where srun reaches host1, host2, ..., each with so many cores: the controller, munge's daemon and a daemon for each host run
# until COMMAND has ended, with folders of their own. Exits with 77 where a daemon does not start.
set -u
count=$1 cores=$2
shift 2
dir=$(mktemp -d "${TMPDIR:-/tmp}/penstock-slurm.XXXXXX") || exit 77
chmod 755 "$dir"
mkdir "$dir/state" "$dir/run" "$dir/log"
end() {
  for pid in "$dir"/run/*.pid; do
    if test -s "$pid"; then kill "$(cat "$pid")" 2>/dev/null; fi
  done
  sleep 0.3
  rm -rf "$dir"
}
trap end EXIT
trap 'exit 130' INT TERM

(umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
munged --force --key-file="$dir/munge.key" --socket="$dir/run/munge.sock" --pid-file="$dir/run/munged.pid" \
  --log-file="$dir/log/munged.log" --seed-file="$dir/run/munged.seed" --num-threads=2 || exit 77
user=$(id -un)
cat >"$dir/slurm.conf" <<END
ClusterName=emulated
SlurmctldHost=controller(10.78.0.254)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
AuthInfo=socket=$dir/run/munge.sock
CredType=cred/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool.%n
SlurmctldPidFile=$dir/run/slurmctld.pid
SlurmdPidFile=$dir/run/slurmd.%n.pid
SlurmctldLogFile=$dir/log/slurmctld.log
SlurmdLogFile=$dir/log/slurmd.%n.log
SlurmctldPort=16817
SlurmdPort=16818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
InactiveLimit=0
SlurmdTimeout=2
MailProg=/bin/true
NodeName=host[1-$count] CPUs=$cores RealMemory=1000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
printf 'PMIxCliTmpDirBase=/dev/shm\n' >"$dir/mpi.conf" # A folder that is each host's own.
SLURM_CONF=$dir/slurm.conf
export SLURM_CONF
slurmctld -f "$SLURM_CONF" || exit 77
for i in $(seq "$count"); do
  mkdir "$dir/spool.host$i"
  on "host$i" env SLURM_CONF="$SLURM_CONF" slurmd -f "$SLURM_CONF" -N "host$i" || exit 77
done
tries=0
until test "$(sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = "$count"; do
  tries=$((tries + 1))
  if test $tries -gt 100; then
    tail -n 5 "$dir"/log/* >&2
    exit 77
  fi
  sleep 0.1
done
"$@"
