#!/bin/sh
# sanitize.t: the generator and the CPU runtime under AddressSanitizer and UndefinedBehaviorSanitizer: their own tests, plans
# of every schedule, training, a checkpoint, its resumption and eval; and the transport's two ends under ThreadSanitizer.
. "${top_srcdir:-.}/tests/support/lib.sh"
echo 'int main(void) { return 0; }' >"$scratch/probe.c"
$CC -fsanitize=address,undefined -o "$scratch/probe" "$scratch/probe.c" 2>/dev/null && "$scratch/probe" ||
  skip_all "$CC has no address sanitizer here"

# A copy of the sources alone: a source folder that was built in cannot be built from elsewhere.
source=$scratch/source
mkdir "$source"
(cd "$top_srcdir" && find configure configure.ac config.h.in aclocal.m4 Makefile.am Makefile.in build-aux m4 base gen runtime kernels tools tests topologies man docs \
  -name .deps -prune -o -type f ! -name '*.[ao]' ! -name .dirstamp ! -name '*.log' ! -name '*.trs' ! \( -perm -100 -size +500k \) -print |
  tar cf - -T -) | (cd "$source" && tar xf -)

work=$scratch/asan
mkdir "$work"
# Lines are all that reports want: -g1 spares the compiler half of the time that it would take for variables, -Og half of the rest.
flags='-g1 -Og -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer'
(cd "$work" && unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS && "$source/configure" -q --without-cuda CC="$CC" CFLAGS="$flags" &&
  make -j2 -s penstock-gen penstock-plan penstock-tokens libruntime.a $KERNEL_ARCHIVES $OFI_ARCHIVES && touch built) >"$scratch/log" 2>&1
ok "the generator, the runtime and the kernels build" test -e "$work/built"
test -e "$work/built" || { tail -n 30 "$scratch/log" | sed 's/^/# /'; finish; }

gen=$work/penstock-gen tokens=$work/penstock-tokens top_builddir=$work CFLAGS=$flags strip_debug=
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0
kinds="actions memory report shapes csv-comms text svg trace" # by turns
for topology in "$topologies"/*.cfg; do
  if grep -q '^plan = ' "$topology"; then
    ok "a plan for $(basename "$topology")" "$work/penstock-plan" --refine=1 --seconds=1 -s plan.microbatch=[4] -o "$scratch/out" "$topology"
    continue
  fi
  kind=${kinds%% *} kinds="${kinds#* } $kind"
  ok "c of $(basename "$topology")" "$gen" --print=c -o "$scratch/out" "$topology"
  ok "$kind of $(basename "$topology")" "$gen" --print=$kind -o "$scratch/out" "$topology"
done
REPLAY_GEN=$gen "$top_srcdir/tests/fuzz/replay" >"$scratch/replay" 2>&1
grep -E '^(not ok|#)' "$scratch/replay" | sed 's/^/# /'
is "inputs that the fuzzer kept" "1..$(grep -c '^ok ' "$scratch/replay")" "$(tail -n 1 "$scratch/replay")"
cat >"$scratch/llama.cfg" <<'END'
pipeline = { ranks = 2; stages_per_rank = 2; microbatches = 4; schedule = "zero_bubble_v"; };
model = { family = "llama"; layers = 4; hidden = 40; heads = 4; kv_heads = 2; head_dim = 10; ffn = 56; vocab = 256; sequence = 24; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 4; };
memory = { audit = true; };
END
make_tokens "$scratch/data.bin" 5000
run() { "$scratch/$1" train --data "$scratch/data.bin" --quiet --audit 1 --log "$scratch/train.log" --checkpoint "$scratch/ckpt" "$2" "$3" ${4:-} 2>"$scratch/err" || { sed 's/^/# /' "$scratch/err"; return 1; }; }
ok "llama is built" build llama "$scratch/llama.cfg"
ok "llama trains" run llama --steps 2
ok "on another topology it is built" build llama1 "$scratch/llama.cfg" -s pipeline.schedule=1f1b -s pipeline.stages_per_rank=1
ok "and resumes" run llama1 --steps 4 --resume
ok "in bf16 it is built" build llama16 "$scratch/llama.cfg" -s model.dtype=bf16
ok "and resumes from there" run llama16 --steps 6 --resume
if test -n "$OFI_ARCHIVES"; then
  ok "with messages by libfabric it is built" build ofi "$scratch/llama.cfg" -s cluster.transport=ofi
  ok "and resumes from there" run ofi --steps 7 --resume
else
  skip "messages by libfabric" "no libfabric here"
fi
members='-s tensor_parallel.ranks=2 -s model.vocab=255'
for name in false true; do
  sequence="-s tensor_parallel.sequence=$name"
  ok "sequence $name: with tensor ranks it is built" build "$name" "$scratch/llama.cfg" $members $sequence --blocks
  ok "sequence $name: it trains" "$scratch/$name" train --data "$scratch/data.bin" --quiet --audit 1 --steps 3 --checkpoint "$scratch/members.ckpt"
  ok "sequence $name: it is measured" "$scratch/$name" measure --seconds 1 --output "$scratch/members.json"
  ok "sequence $name: by which it is predicted" "$gen" --check --costs="$scratch/members.json" "$scratch/llama.cfg" $members $sequence
  ok "sequence $name: it evaluates" "$scratch/$name" eval --data "$scratch/data.bin" --checkpoint "$scratch/members.ckpt" --steps 2
  rm -r "$scratch/members.ckpt"
done
split='-s tensor_parallel.splits=2 -s model.tie_embeddings=true -s model.vocab=257 -s generate.prompts=2'
for name in rows0 rows32 members0 members32; do
  case $name in
    rows*) more=$split audited='--audit 1' ;;
    members*) more="$split $members -s model.vocab=257" audited= ;;
  esac
  ok "$name: with split weights and a tied head it is built" build $name "$scratch/llama.cfg" $more -s model.loss_rows=${name##*[a-z]}
  ok "$name: trains" "$scratch/$name" train --data "$scratch/data.bin" --quiet $audited --overwrite --checkpoint "$scratch/split" --steps 2
  ok "$name: scores" "$scratch/$name" score --data "$scratch/data.bin" --quiet --checkpoint "$scratch/split" --output "$scratch/out" --logits "$scratch/logits" --logits-top 3
  ok "$name: generates" "$scratch/$name" generate --quiet --checkpoint "$scratch/split" --prompt '1 2 3' --tokens 30
done
ok "eval" "$scratch/llama" eval --data "$scratch/data.bin" --checkpoint "$scratch/ckpt" --steps 2
ok "init" "$scratch/llama" init --seed 1 --output "$scratch/init.safetensors"
ok "info" "$scratch/llama" info --json
is "the log has all steps" "$(log_field "$scratch/train.log" step | tr '\n' ' ')" "1 2 3 4 5 6${OFI_ARCHIVES:+ 7} "
# Four seconds are one attacked run, and one that ends with 75 is allowed: then another seed is tried.
for seed in 1 2 3; do
  PORT_BUILD=$work PORT_SECONDS=4 PORT_SEED=$seed top_builddir=$top_builddir sh "$top_srcdir/tests/fuzz/port.t" >"$scratch/port" 2>&1
  test "$(grep -c '^ok ' "$scratch/port")" -eq 4 && break
done
grep -E '^#|^not ok' "$scratch/port" | sed 's/^not/# not/'
case $(tail -n 1 "$scratch/port") in
  *SKIP*) skip "strangers at the ports" "$(sed 's/.*SKIP //;q' "$scratch/port")" ;;
  *) is "strangers at the ports" "$(grep -c '^ok ' "$scratch/port")" 4 ;;
esac

tests='gen/canonical gen/compose gen/partition gen/shapes gen/simulate gen/verify_rows gen/verify_deadlocks gen/action_text gen/verify gen/verify_tensor_ranks gen/verify_tokens gen/interval_tree'
tests="$tests runtime/safetensors runtime/initial runtime/checkpoint"
tests="$tests kernels/attention kernels/contract kernels/experts kernels/loss kernels/matmul kernels/narrow kernels/norm kernels/pointwise kernels/splits kernels/product_bf16"
(cd "$work" && unset MAKEFLAGS MFLAGS MAKELEVEL && make -j2 -s $(printf 'tests/%s ' $tests)) >"$scratch/log" 2>&1 || tail -n 5 "$scratch/log" | sed 's/^/# /'
export PEN_BREAK_ROUNDS=2 PEN_BREAK_INSTANCES=4
for test in $tests; do
  if (cd "$work" && CMOCKA_MESSAGE_OUTPUT=TAP "tests/$test") >"$scratch/test.log" 2>&1; then
    result 0 "tests/$test"
  else
    result 1 "tests/$test"
    grep -E '^not ok|ERROR|runtime error' "$scratch/test.log" | sed 's/^/# /' | head
  fi
done

# The transport under ThreadSanitizer.
if $CC -fsanitize=thread -o "$scratch/probe" "$scratch/probe.c" 2>/dev/null && "$scratch/probe"; then
  tsan=$scratch/tsan
  mkdir "$tsan"
  (cd "$tsan" && unset MAKEFLAGS MFLAGS MAKELEVEL CFLAGS && "$source/configure" -q --without-cuda CC="$CC" CFLAGS='-g1 -O1 -fsanitize=thread' &&
    make -j2 -s KERNEL_ARCHIVES= tests/runtime/transport) >"$scratch/log" 2>&1
  ok "tests/runtime/transport under ThreadSanitizer" env CMOCKA_MESSAGE_OUTPUT=STDOUT "$tsan/tests/runtime/transport"
else
  skip "tests/runtime/transport under ThreadSanitizer" "$CC has none here"
fi
finish
