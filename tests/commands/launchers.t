#!/bin/sh
# launchers.t: srun, Open MPI's mpirun, MPICH's mpiexec and penstock-launch start a plan on two emulated hosts, with one command a host and with
# one a rank; it trains with the bits of one host.
. "${top_srcdir:-.}/tests/support/lib.sh"
need_hosts
hosts() { timeout 300 sh "$top_srcdir/tests/support/hosts.sh" "$@"; }
prepare_hosts
ok "a plan for one host is built" build one "$scratch/llama.cfg"
ok "and one for two" build two "$scratch/llama.cfg" -s cluster.hosts=[host1,host2] -s cluster.port=$port -s cluster.bind=none # All hosts are the cores of this machine.

# started NAME COMMAND...: the command, run on emulated hosts, trains two with the bits of one. LAUNCH stands for what it starts.
train="$scratch/two train --data $scratch/data.bin --seed 7 --steps 4 --quiet --log $scratch/two.log --checkpoint $scratch/two.ckpt"
started() {
  started_name=$1
  shift
  rm -rf "$scratch/two.log" "$scratch/two.ckpt"
  "$@" >"$scratch/out" 2>"$scratch/err"
  is "$started_name: ends with 0" $? 0
  log_field "$scratch/two.log" loss >"$scratch/two.bits"
  log_field "$scratch/two.log" grad_norm >>"$scratch/two.bits"
  (cd "$scratch/two.ckpt/latest" && sha256sum model.safetensors optimizer.safetensors) >"$scratch/two.sums"
  ok "$started_name: to the bits of one host" same_bits 4 one two || sed 's/^/# /' "$scratch/err"
}
# refused NAME PATTERN COMMAND...: it ends with 64 and says so.
refused() {
  refused_name=$1 refused_pattern=$2
  shift 2
  "$@" >"$scratch/out" 2>"$scratch/err"
  ok "$refused_name: does not end with 0" test $? -ne 0
  matches "$refused_name: says why" "$(complaints "$scratch/out" "$scratch/err")" "$refused_pattern"
}

# survives NAME COMMAND...: the command, run on three emulated hosts, trains spare with the bits of one host, though a host is killed.
ok "a plan with a spare is built" build spare "$scratch/llama.cfg" -s cluster.hosts=[host1,host2] -s cluster.spares=[host3] -s cluster.port=$port \
  -s cluster.bind=none
# So many steps that the run does not end before a host is killed, on a busy machine neither.
ok "1000 steps on one host" train_bits one --data "$scratch/data.bin" --steps 1000
cp "$scratch/one.bits" "$scratch/long.bits" && cp "$scratch/one.sums" "$scratch/long.sums"
ok "4 steps on one host" train_bits one --data "$scratch/data.bin" --steps 4
spare="$scratch/spare train --data $scratch/data.bin --seed 7 --steps 1000 --quiet --log $scratch/two.log --checkpoint $scratch/two.ckpt \
  --restarts 1 --recover-every 1"
cat >"$scratch/kill_host" <<END
rm -rf "$scratch/two.log" "$scratch/two.ckpt"
"\$@" &
until test -s "$scratch/two.log" && test "\$(wc -l <"$scratch/two.log")" -ge 10; do sleep 0.01; done
on host2 sh -c 'kill -9 -1'
wait \$!
END
survives() {
  survives_name=$1
  shift
  "$@" >"$scratch/out" 2>"$scratch/err"
  is "$survives_name: ends with 0" $? 0
  ok "$survives_name: restarts once" test "$(grep -c '"source":"memory"' "$scratch/two.log")" -eq 1
  sed -i '/"event"/d' "$scratch/two.log"
  ok "$survives_name: to the bits of one host" test "$(log_field "$scratch/two.log" loss; log_field "$scratch/two.log" grad_norm)" = "$(cat "$scratch/long.bits")"
}

# ---- penstock-launch ----
launch() { hosts 2 "$top_srcdir/tools/penstock-launch" --ssh rsh_to_host "$@"; }
unset PENSTOCK_SECRET_FILE
started "penstock-launch" launch $train
launch "$scratch/two" info >"$scratch/out"
is "each line begins with the name of its host" "$(sed -n 's/: plan .*//p' "$scratch/out" | sort | tr '\n' ' ')" "host1 host2 "
launch "$scratch/two" train --data "$scratch/absent file" >"$scratch/out" 2>"$scratch/err"
is "its status is the first that is not 0" $? 66
matches "a word with a blank stays one" "$(complaints "$scratch/err")" "*host2: penstock: *absent file*"
cat >"$scratch/interrupt" <<END
"$top_srcdir/tools/penstock-launch" --ssh rsh_to_host $(echo "$train" | sed 's/--steps 4/--steps 100000/') &
until grep -q '"step"' "$scratch/two.log" 2>/dev/null; do sleep 0.05; done
kill -TERM \$!
wait \$!
END
rm -rf "$scratch/two.log" "$scratch/two.ckpt"
hosts 2 sh "$scratch/interrupt" >"$scratch/out" 2>"$scratch/err"
is "SIGTERM ends the run after a step" $? 0
ok "and saves it" test -f "$scratch/two.ckpt/latest/model.safetensors"
survives "penstock-launch, a killed host" hosts 3 sh "$scratch/kill_host" "$top_srcdir/tools/penstock-launch" --ssh rsh_to_host $spare
# ... with --input.
"$scratch/one" init --output "$scratch/weights" 2>"$scratch/err"
generate="generate --init $scratch/weights --stream --tokens 8 --quiet"
printf '1 2 3\n7\n' >"$scratch/lines"
"$scratch/one" $generate <"$scratch/lines" >"$scratch/wanted" 2>"$scratch/err"
mkfifo "$scratch/to" "$scratch/from"
launch --input "$scratch/two" $generate <"$scratch/to" >"$scratch/from" 2>"$scratch/err" &
launched=$!
exec 3>"$scratch/to" 4<"$scratch/from"
for line in 1 2; do
  sed -n ${line}p "$scratch/lines" >&3
  read -r reply <&4
  is "a line of the input is answered: $line" "$reply" "$(sed -n "${line}s/ $//p" "$scratch/wanted")"
done
exec 3>&-
wait $launched
is "the end of the input ends the run" "$? $(complaints "$scratch/err")" "0 "
exec 4<&-
launch --input "$scratch/one" info >"$scratch/out" 2>"$scratch/err"
is "a plan without hosts takes no input" $? 64
launch "$scratch/one" info >"$scratch/out" 2>"$scratch/err"
is "a plan without hosts is refused" $? 64
PENSTOCK_SECRET_FILE=$scratch/secret
export PENSTOCK_SECRET_FILE

# ---- Open MPI ----
if command -v mpirun.openmpi >/dev/null; then
  openmpi() { hosts 2 env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --mca plm_rsh_agent rsh_to_host --mca plm rsh \
    -x PENSTOCK_SECRET_FILE --host host1:2,host2:2 --oversubscribe "$@"; }
  started "Open MPI, a command a host" openmpi -n 2 --map-by node $train
  started "Open MPI, a command a rank" openmpi -n 4 --map-by slot $train
  refused "Open MPI, three commands" "*penstock: OMPI_COMM_WORLD_SIZE = 3: start 4 commands, one a rank, or 2, one a host*" openmpi -n 3 --map-by slot $train
else
  skip "Open MPI" "it is not installed"
fi

# ---- MPICH ----
if command -v mpiexec.hydra >/dev/null; then
  mpich() { hosts 2 mpiexec.hydra -launcher rsh -launcher-exec rsh_to_host -hosts host1:2,host2:2 "$@"; }
  started "MPICH, a command a host" mpich -ppn 1 -n 2 $train
  started "MPICH, a command a rank" mpich -ppn 2 -n 4 $train
else
  skip "MPICH" "it is not installed"
fi

# ---- Slurm ----
if command -v slurmctld >/dev/null && command -v munged >/dev/null && test "$(id -u)" -eq 0; then
  slurm() { hosts 2 sh "$top_srcdir/tests/support/slurm.sh" 2 2 "$@"; }
  slurm true
  if test $? -eq 77; then
    skip "Slurm" "it does not start here"
  else
    started "srun, a command a host" slurm srun -N2 --ntasks-per-node=1 $train
    started "srun, a command a rank" slurm srun -N2 --ntasks-per-node=2 $train
    if slurm srun --mpi=list 2>&1 | grep -q pmix; then
      started "srun --mpi=pmix, a command a host" slurm srun --mpi=pmix -N2 --ntasks-per-node=1 $train
      started "srun --mpi=pmix, a command a rank" slurm srun --mpi=pmix -N2 --ntasks-per-node=2 $train
    else
      skip "srun --mpi=pmix" "this Slurm has no PMIx"
    fi
    survives "srun, a killed host" hosts 3 sh "$top_srcdir/tests/support/slurm.sh" 3 2 sh "$scratch/kill_host" \
      srun -N3 --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 $spare
    ok "a plan with as many ranks as hosts and spares is built" build spare "$scratch/llama.cfg" -s cluster.hosts=[host1,host2] \
      -s cluster.spares=[host3,host4] -s cluster.port=$port -s cluster.bind=none
    survives "srun, as many commands as ranks" hosts 4 sh "$top_srcdir/tests/support/slurm.sh" 4 2 sh "$scratch/kill_host" \
      srun -N4 --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 $spare
    example() {
      slurm sbatch --wait -o "$scratch/job.out" -N2 "$top_srcdir/docs/examples/penstock.sbatch" "$scratch/two" "$scratch/data.bin" \
        "$scratch/two.ckpt" --seed 7 --steps 4 --quiet && cp "$scratch/two.ckpt/log.jsonl" "$scratch/two.log"
    }
    started "sbatch, the example" example
    refused "srun, three commands" "*penstock: SLURM_STEP_NUM_TASKS = 3: start 4 commands, one a rank, or 2, one a host*" slurm srun -N2 -n3 $train
  fi
else
  skip "Slurm" "it is not installed, or this is not root"
fi

# ---- variables like those of torchrun ----
cat >"$scratch/variables" <<'END'
for rank in 0 1 2 3; do
  on "host$((rank / 2 + 1))" env MASTER_ADDR=host1 MASTER_PORT=29511 WORLD_SIZE=4 RANK=$rank "$@" &
  pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid" || exit; done
END
started "RANK and WORLD_SIZE" hosts 2 sh "$scratch/variables" $train

# ---- a command a host, of a plan with as many ranks as hosts ----
cat >"$scratch/each_host" <<'END'
for host in $each_host; do
  on "host$host" env WORLD_SIZE=$count LOCAL_WORLD_SIZE=1 RANK=$((host - 1)) "$@" &
  pids="${pids:-} $!"
done
for pid in $pids; do wait "$pid" || exit; done
END
each_host() {
  each_host=$(seq "$1") count=$1
  export each_host count
  hosts "$@"
}
ok "rank 0 on the second host" build two "$scratch/llama.cfg" -s pipeline.ranks=2 -s cluster.hosts=[host1,host2] -s cluster.mapping=[1,0] \
  -s cluster.port=$port -s cluster.bind=none
started "RANK of a host" each_host 2 sh "$scratch/each_host" $train
hosts 2 on host1 $train --rank 0 --overwrite >"$scratch/out" 2>"$scratch/err"
is "rank 0 on another host is refused" $? 64
matches "in words" "$(complaints "$scratch/err")" "*cannot listen at 10.78.0.2, which is no address of this host: start host host2's command there*"
finish
