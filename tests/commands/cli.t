#!/bin/sh
# cli.t: the deployed binary's command line: help, version, every way to get it wrong, and the form of what it prints.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/llama.cfg" <<'END'
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 64; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 6; };
END
ok "a plan is built" build tiny "$scratch/llama.cfg"
ok "a plan without tokens is built" build mlp "$topologies/mlp_1.cfg"
make_tokens "$scratch/data.bin" 400 # 24 windows, 6 full steps of 4
cd "$scratch" || exit 99

# refuses STATUS PATTERN ARGUMENT...: the message matches, one line, with that status.
refuses() {
  wanted=$1 pattern=$2
  shift 2
  ./tiny "$@" >out 2>err
  got=$?
  is "status of '$*'" "$got" "$wanted"
  matches "message of '$*'" "$(complaints err)" "$pattern"
}

refuses 64 "penstock: *train, eval, init*info*"
refuses 64 "penstock: tarin: *train, eval, init*info*" tarin
refuses 64 "penstock: train*--data*" train
refuses 64 "penstock: eval*--data*" eval --init x
refuses 64 "penstock: eval*--checkpoint*--init*" eval --data data.bin
refuses 64 "penstock: eval*--checkpoint*--init*" eval --data data.bin --init x --checkpoint y
refuses 64 "penstock: init*--output*" init
refuses 64 "penstock: score*--data*" score --init x
refuses 64 "penstock: score*--output*" score --data data.bin --init x
refuses 64 "penstock: score*--checkpoint*--init*" score --data data.bin --output scores
refuses 64 "penstock: --end-of-text -1: *0 or more*" score --end-of-text -1
refuses 64 "penstock: --steps 0: *1 or more*" train --steps 0
refuses 64 "penstock: --steps -1: *1 or more*" train --steps -1
refuses 64 "penstock: --steps 3x: *" train --steps 3x
refuses 64 "penstock: --steps : *" train --steps ""
refuses 64 "penstock: --steps 18446744073709551616: a whole number, 1 or more; too large" train --steps 18446744073709551616
refuses 64 "penstock: --seed 1.5: *0 or more*" train --seed=1.5
refuses 64 "penstock: --timeout 0: *above 0*" train --timeout 0
refuses 64 "penstock: --timeout 1e999: a number of seconds above 0; too large" train --timeout 1e999
refuses 64 "penstock: --max-skipped 0: *1 or more" train --max-skipped 0
refuses 64 "penstock: --timeout nan: *above 0*" train --timeout nan
refuses 64 "penstock: --steps: needs N" train --steps
refuses 64 "penstock: --quiet: takes no value" train --quiet=1
refuses 64 "penstock: --bogus: no such option; see *train --help" train --bogus 3
refuses 64 "penstock: --json: no such option; see *train --help" train --json
refuses 64 "penstock: --measure: no such option any more; the command measure writes costs: penstock-NAME measure --output FILE" train --measure costs
refuses 64 "penstock: --measure: no such option any more; *" train --measure=costs
refuses 64 "penstock: --measured: no such option; see *train --help" train --measured costs
refuses 64 "penstock: data.bin: not an option*" train data.bin
refuses 64 "penstock: --resume *--checkpoint*" train --data data.bin --resume
refuses 64 "penstock: --save-every 2 *--checkpoint*" train --data data.bin --save-every 2
refuses 64 "penstock: --audit 0: *1 or more*" train --data data.bin --audit 0
refuses 64 "penstock: --audit 10: *memory.audit = true" train --data data.bin --audit 10
refuses 64 "penstock: --steps: given twice" train --steps 2 --data data.bin --steps=3
refuses 64 "penstock: --quiet: given twice" train --quiet --quiet

# The environment is read like options; for a device or a transport that the plan does not have, too. What is empty is absent.
isa=$(./tiny info | sed -n 's/.*kernels:* *\([a-z0-9]*\).*/\1/p' | head -n 1)
while read -r setting allowed; do
  export "${setting?}"
  refuses 64 "penstock: ${setting%%=*} = ${setting#*=}: one of $allowed" train --data data.bin --steps 1
  refuses 64 "penstock: ${setting%%=*} = *" info
  unset "${setting%%=*}"
done <<END
PEN_ISA=AVX2 $isa*baseline
PEN_ISA=avx-512 $isa*baseline
PEN_PRODUCTS=ours own, library
PEN_GRAPH=fast marked, unmarked, serial, plain
PEN_NCCL=puts put, send
PEN_ATTENTION=flash own
END
ok "valid and empty values are taken" env PEN_ISA=baseline PEN_PRODUCTS=own PEN_GRAPH=plain PEN_NCCL= ./tiny train --data data.bin --steps 1 --quiet

# A launcher starts a plan of one host once.
while read -r setting; do
  export "${setting?}"
  refuses 64 "penstock: ${setting%=*} = 4: all ranks of this binary are on one host: start one command" train --data data.bin --steps 1
  unset "${setting%=*}"
done <<END
SLURM_STEP_NUM_TASKS=4
OMPI_COMM_WORLD_SIZE=4
PMI_SIZE=4
WORLD_SIZE=4
END
ok "once is fine, whatever was allocated" env SLURM_NTASKS=4 SLURM_STEP_NUM_TASKS=1 RANK=0 WORLD_SIZE=1 ./tiny train --data data.bin --steps 1 --quiet
ok "weights to score with" ./tiny init --output init.safetensors
refuses 66 "penstock: none.bin: *" train --data none.bin
refuses 65 "penstock: llama.cfg: *" train --data llama.cfg
refuses 66 "penstock: *none*" train --data data.bin --init none.safetensors
refuses 66 "penstock: *none*" eval --data data.bin --checkpoint none
refuses 73 "penstock: --log *" train --data data.bin --log none/log
refuses 73 "penstock: --output *" score --data data.bin --init init.safetensors --output none/scores
refuses 73 "penstock: --metrics *" train --data data.bin --metrics none/metrics
refuses 73 "penstock: --metrics /dev/null: not a regular file" train --data data.bin --metrics /dev/null
refuses 73 "penstock: --trace *" train --data data.bin --trace none/trace
refuses 73 "penstock: --checkpoint *" train --data data.bin --checkpoint data.bin/ckpt
mkdir unwritable checkpoint
chmod 555 unwritable
chmod 755 .
as_user() { if test "$(id -u)" -eq 0; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
is "a folder that cannot be written is refused at once" "$(as_user ./tiny train --data data.bin --checkpoint unwritable 2>&1; echo $?)" \
  "penstock: --checkpoint unwritable: Permission denied
73"
touch checkpoint/optimizer.safetensors
refuses 64 "penstock: --checkpoint checkpoint: is one checkpoint itself: name the folder that holds it" train --data data.bin --checkpoint checkpoint

# No output is an input, and no two outputs are one file.
cp data.bin kept.bin
ln -s data.bin link.bin
for option in log metrics trace; do
  refuses 64 "penstock: --$option data.bin: the same file as --data" train --data data.bin --$option data.bin
  refuses 64 "penstock: --$option link.bin: the same file as --data" train --data data.bin --$option link.bin
done
refuses 64 "penstock: --log new: the same file as --trace" train --data data.bin --log new --trace new
refuses 64 "penstock: --log new: the same file as --trace" train --data data.bin --log new --trace ../"$(basename "$PWD")"/./new
refuses 64 "penstock: --log kept.bin: the same file as --eval-data" train --data data.bin --log kept.bin --eval-data kept.bin --eval-every 1
refuses 64 "penstock: --output data.bin: the same file as --data" score --data data.bin --output data.bin --init none
mkdir weights
./tiny init --seed 1 --output weights/model.safetensors && cp weights/model.safetensors kept.safetensors
refuses 64 "penstock: --output weights/model.safetensors: a file of the weights that are read from weights" \
  score --data data.bin --init weights --output weights/model.safetensors
ln -s new dangling
refuses 64 "penstock: --log new: the same file as --trace" train --data data.bin --log new --trace dangling
refuses 64 "penstock: --log m.tmp: the same file as --metrics's temporary file" train --data data.bin --metrics m --log m.tmp
./tiny train --data data.bin --steps 1 --checkpoint run --quiet
refuses 64 "penstock: --output run/latest/config.json: in the folder of a checkpoint" init --output run/latest/config.json
ln -s run/latest/config.json to_config
refuses 64 "penstock: --output to_config: in the folder of a checkpoint" init --output to_config
refuses 64 "penstock: --log run/step-2: a name of the checkpoints of --checkpoint run" train --data data.bin --checkpoint run --log run/step-2
refuses 64 "penstock: --log runs: the same file as --checkpoint" train --data data.bin --checkpoint runs --log runs
ln weights/model.safetensors other-name
refuses 64 "penstock: --log other-name: a file of the weights that are read from weights" train --data data.bin --init weights --log other-name
mkdir shards && cp kept.safetensors shards/one.safetensors
head -c 20000 kept.safetensors | grep -ao '"[a-z0-9_.]*weight"' | sed 's/$/:"one.safetensors"/' | paste -sd, | sed 's/.*/{"weight_map":{&}}/' >shards/model.safetensors.index.json
refuses 64 "penstock: --log shards/one.safetensors: a file of the weights that are read from shards/" \
  train --data data.bin --init shards/model.safetensors.index.json --log shards/one.safetensors
ok "and the inputs are what they were" sh -c 'cmp data.bin kept.bin && cmp weights/model.safetensors kept.safetensors'
ok "one device file may be given for several outputs" ./tiny train --data data.bin --steps 1 --quiet --log /dev/null --trace /dev/null
mkfifo pipe
refuses 66 "penstock: pipe: not a regular file" train --data pipe
timeout -s TERM -k 3 1 ./tiny train --data data.bin --quiet --log pipe
is "a signal ends the wait for who reads the log" $? 124

for command in "" train eval init info score generate; do
  ./tiny $command --help >out 2>err
  is "status of '$command --help'" $? 0
  ok "'$command --help' speaks on standard output" test -s out -a ! -s err
done
is "the commands are in one column" "$(./tiny --help | sed -n 's/^  \([a-z][a-z]*\)  *[A-Z].*/\1/p' | tr '\n' ' ')" \
  "train eval init info score generate measure "
matches "--version" "$(./tiny --version)" "penstock-tiny (penstock) *"

./tiny train --data data.bin --log log --checkpoint ckpt >out 2>err
is "a short run" $? 0
is "its log has a line a step" "$(log_field log step | tr '\n' ' ')" "1 2 3 4 5 6 "
is "with the keys of the contract, in order, then in the first line the plan" "$(sed 's/,"plan":{.*}}}$/}/; s/:[^,}]*//g' log | sort -u)" \
  '{"step","loss","grad_norm","lr","tokens","step_ms","tokens_per_second","epoch"}'
is "it says nothing on standard output" "$(cat out)" ""
./tiny train --data data.bin --quiet >out 2>err
is "--quiet says nothing" "$(complaints out err)" ""
./tiny train --data data.bin --checkpoint fresh --resume --quiet --steps 1 2>err
is "--resume without a checkpoint starts" $? 0
matches "and says so" "$(complaints err)" "*fresh*step 1*"

./tiny eval --data data.bin --checkpoint ckpt --quiet >out 2>err
is "eval of a checkpoint" $? 0
matches "its last line" "$(tail -n 1 out)" '{"loss":[0-9]*,"perplexity":[0-9]*,"tokens":384}'
latest=$(cat out)
./tiny eval --data data.bin --checkpoint ckpt/latest --quiet >out
is "eval of the checkpoint's folder itself" "$(cat out)" "$latest"
./tiny eval --data data.bin --init ckpt/latest/model.safetensors --quiet >out
is "eval of its weights alone" "$(cat out)" "$latest"
./tiny eval --data data.bin --checkpoint ckpt --steps 1 --quiet >out
matches "eval --steps" "$(tail -n 1 out)" '*"tokens":64}'

./tiny init --seed 5 --output a.safetensors && ./tiny init --seed 5 --output b.safetensors && ./tiny init --seed 6 --output c.safetensors
is "init" $? 0
ok "init depends on the seed" sh -c 'cmp -s a.safetensors b.safetensors && ! cmp -s a.safetensors c.safetensors'
./tiny train --data data.bin --seed 5 --steps 2 --log by_seed --quiet
./tiny train --data data.bin --init a.safetensors --steps 2 --log by_file --quiet
is "init writes what training starts from" "$(log_field by_file loss)" "$(log_field by_seed loss)"

./tiny info >out
matches "info" "$(cat out)" "*1f1b*2 ranks*digest*"
./tiny info --json >out
matches "info --json" "$(cat out)" '{"name":"tiny",*"digest":"*"rank":\[{"rank":0,"arena_bytes":*}'
./mlp eval --init none.safetensors >out 2>err
is "a model that makes its inputs needs no --data" "$?: $(grep -c -- --data err)" "66: 0"
for option in --data "--eval-every 1 --eval-data"; do
  ./mlp train --steps 1 --quiet $option none.bin >out 2>err
  is "but ${option##* } must be there" "$?: $(complaints err)" "66: penstock: none.bin: No such file or directory"
  ./mlp train --steps 1 --quiet $option data.bin >out 2>err
  is "and ${option##* } is said to be left alone" "$?: $(complaints err)" "0: mlp: ${option##* } data.bin is not read: the model makes its own inputs"
done
is "in eval as well" "$(./mlp init --seed 1 --output own.safetensors; ./mlp eval --init own.safetensors --data none.bin 2>&1; echo $?)" \
  "penstock: none.bin: No such file or directory
66"
is "a folder is no place for weights" "$(./tiny init --output . 2>&1; echo $?)" "penstock: .: cannot create: Is a directory
73"
ok "a device is" ./tiny init --output /dev/null
ok "and stays one" test -c /dev/null
./tiny train --data data.bin --steps 2 --log closed.log --trace closed.trace --checkpoint closed <&- >&- 2>&-
is "with all standard streams closed" $? 0
is "the log is the log" "$(log_field closed.log step | tr '\n' ' ')" "1 2 "
is "and the trace a trace" "$(head -c 1 closed.trace)$(tail -n 1 closed.trace)" "{]}"
./tiny info >&- 2>err
is "an error of standard output is reported" "$?: $(complaints err)" "74: penstock: cannot write to standard output"
if test -w /dev/full; then
  is "init without room" "$(./tiny init --output /dev/full 2>&1; echo $?)" "penstock: /dev/full: cannot write: No space left on device
74"
  for words in --help --version "train --help" info; do
    ./tiny $words >/dev/full 2>err
    is "status of '$words' without room for what it prints" $? 74
  done
fi

# penstock-launch gives ssh no option that a plan names.
mkdir bin
printf '#!/bin/sh\necho "hosts $HOSTS"\n' >bin/plan
printf '#!/bin/sh\necho "$@" | head -n 1\n' >bin/ssh
chmod +x bin/plan bin/ssh
launch() { HOSTS=$1 PATH="$PWD/bin:$PATH" sh "$top_srcdir/tools/penstock-launch" -- bin/plan train 2>&1; }
is "penstock-launch ends the options of ssh" "$(launch "one" | head -n 1)" "one: -o BatchMode=yes -- one cd '$PWD' || exit 71"
is "a host that is one is refused" "$(launch "one -v"; echo $?)" "penstock-launch: bin/plan: the name of a host begins with -, as an option does
78"
sh "$top_srcdir/tools/penstock-launch" --ssh a --ssh=b bin/plan train >out 2>err
matches "--ssh given twice" "$? $(complaints err)" "64 penstock-launch: --ssh: given twice*"
finish
