#!/bin/sh
# seal.t: between steps nothing is allocated, mapped, opened or started: system calls by strace, allocator calls by a counter put in
# front of malloc, over N and N + 100 steps; and allocator calls of our own code by a build that aborts at the first.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/llama.cfg" <<'END'
pipeline = { ranks = 2; stages_per_rank = 2; microbatches = 4; schedule = "zero_bubble_v"; };
model = { family = "llama"; layers = 4; hidden = 64; heads = 4; kv_heads = 2; ffn = 96; vocab = 256; sequence = 64; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
memory = { audit = true; };
END
ok "a plan is built" build llama "$scratch/llama.cfg"
make_tokens "$scratch/data.bin" 20000
plan=llama

train() {
  "$@" train --data "$scratch/data.bin" --quiet --overwrite --log "$scratch/log" --trace "$scratch/trace" --eval-data "$scratch/data.bin" --eval-every 7 --eval-steps 2 --audit 2 \
    --steps "$steps" 2>"$scratch/err"
}

# ---- system calls ----
forbidden='brk|mmap|munmap|mremap|clone|clone3|fork|vfork|open|openat|openat2|creat|mprotect|madvise|memfd_create'
if command -v strace >/dev/null && strace -o "$scratch/strace" true 2>/dev/null; then
  steps=120
  ok "a run under strace" train strace -f -o "$scratch/strace" "$scratch/llama"
  # From the line that logs step 1 to the line that logs the last: by then no rank can have left its steps.
  awk '/write\(.*"{\\"step\\":1,/ { on = 1 } on { print } /write\(.*"{\\"step\\":119,/ { on = 0 }' "$scratch/strace" >"$scratch/steps"
  ok "strace saw the steps" test "$(grep -c 'write(' "$scratch/steps")" -ge 119
  is "no forbidden system call between steps" "$(grep -Ec " ($forbidden)\\(" "$scratch/steps")" 0
else
  skip "no forbidden system call between steps" "no strace here"
fi

# ---- allocator calls of the whole process, libraries included ----
cat >"$scratch/count.c" <<'END'
/* Counts calls of the allocator in every process; prints the count when a rank exits. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static _Atomic unsigned long calls;
void *malloc(size_t bytes) { calls++; return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { calls++; return __libc_calloc(count, bytes); }
void *realloc(void *old, size_t bytes) { calls++; return __libc_realloc(old, bytes); }
void *memalign(size_t alignment, size_t bytes) { calls++; return __libc_memalign(alignment, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **to, size_t alignment, size_t bytes) { *to = memalign(alignment, bytes); return *to ? 0 : 12; }
void _exit(int status) {
  dprintf(2, "allocator calls: %lu\n", (unsigned long)calls);
  syscall(SYS_exit_group, status);
  __builtin_unreachable();
}
END
count_calls() { # PLAN
  train env LD_PRELOAD="$scratch/count.so" "$scratch/$1" && grep 'allocator calls' "$scratch/err" | sort
}
if ${CC:-cc} -shared -fPIC -o "$scratch/count.so" "$scratch/count.c" 2>/dev/null; then
  steps=20
  few=$(count_calls $plan)
  steps=120
  many=$(count_calls $plan)
  is "both ranks counted" "$(echo "$few" | wc -l)" 2
  is "100 steps more make no allocator call more" "$many" "$few"
else
  skip "100 steps more make no allocator call more" "cannot make a shared object"
fi

# ---- allocator calls of our code: the test build ----
wrapped=$(grep -o -- '-Wl,--wrap=[a-z_,=-]*' "$top_srcdir/runtime/base/seal.c" | tr '\n' ' ')
sealed_build() {
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -DPEN_TEST_SEAL -I"$top_srcdir" $wrapped -o "$scratch/sealed" \
    "$top_srcdir/runtime/base/seal.c" "$scratch/$plan.o" $1 libruntime.a $KERNEL_ARCHIVES $OFI_LIBS $RUNTIME_LIBS)
}
steps=20
ok "the test build" sealed_build ""
ok "the test build runs: our code keeps the seal" train "$scratch/sealed"
ok "it saves checkpoints, too" "$scratch/sealed" train --data "$scratch/data.bin" --quiet --steps 6 --save-every 2 \
  --checkpoint "$scratch/ckpt"
plan=bf16
build bf16 "$scratch/llama.cfg" -s model.dtype=bf16
ok "the test build in bf16" sealed_build ""
ok "it keeps the seal, too" train "$scratch/sealed"

# Steps of two shapes by turns, on packed documents: windows of a line each, twelve short ones and then four long ones.
cat "$scratch/llama.cfg" - >"$scratch/shapes.cfg" <<'END'
shapes = ({ sequence = 16; microbatches = 6; });
END
awk 'BEGIN { for (n = 0; n < 40; n++) printf "%*s\n", n % 20 < 12 ? 9 : 40, "" }' >"$scratch/lines"
"$tokens" --bytes --end-of-text 10 --pack 64 --pad-to 8 --single -o "$scratch/packed.bin" "$scratch/lines" 2>/dev/null
plan=shapes
ok "a plan of two shapes" build shapes "$scratch/shapes.cfg" -s batch.packed=true
ok "its test build" sealed_build ""
ok "keeps the seal while shapes change" "$scratch/sealed" train --data "$scratch/packed.bin" --quiet --steps 20 --overwrite --log "$scratch/log"
ok "and they did" test "$(log_field "$scratch/log" tokens | sort -u | wc -l)" -ge 2
plan=llama

# Replicas that gather weights and sum gradients within programs. Four ranks: the calls of all are added.
units="-s data_parallel.replicas=2 -s data_parallel.shard=weights -s data_parallel.unit=layer -s memory.recompute=layer"
add_calls() { awk '{ sum += $3 } END { print NR, sum }'; }
plan=units
ok "a plan that gathers by layer" build units "$scratch/llama.cfg" $units
ok "its test build" sealed_build ""
ok "keeps the seal" train "$scratch/sealed"
if test -f "$scratch/count.so"; then
  few=$(count_calls units | add_calls)
  steps=120
  is "100 steps more make no allocator call more" "$(count_calls units | add_calls)" "$few"
  matches "four ranks counted" "$few" "4 *"
  steps=20
fi
plan=llama

if test -n "$OFI_ARCHIVES"; then
  plan=units_ofi
  ok "a plan that gathers by layer, by libfabric" build units_ofi "$scratch/llama.cfg" $units -s cluster.transport=ofi
  ok "its test build" sealed_build "$OFI_LINK"
  ok "keeps the seal" train "$scratch/sealed"
  steps=20
  plan=ofi
  ok "a plan whose messages go by libfabric" build ofi "$scratch/llama.cfg" -s cluster.transport=ofi
  ok "its test build" sealed_build "$OFI_LINK"
  ok "keeps the seal" train "$scratch/sealed"
  steps=20
  few=$(count_calls $plan)
  steps=120
  # How often it calls the allocator while it connects varies by a few.
  many=$(count_calls $plan)
  fewer_than_steps() { echo $few $many | awk '{ exit !($9 + $12 - $3 - $6 < 50 && NF == 12) }' || { echo "# $few, then $many"; return 1; }; }
  ok "libfabric makes no allocator call a step" fewer_than_steps
  plan=llama
else
  skip "messages by libfabric keep the seal" "no libfabric here"
fi

# A rank of three threads.
threads="-s pipeline.ranks=1 -s pipeline.stages_per_rank=1 -s pipeline.schedule=1f1b -s cluster.threads_per_rank=3 -s cluster.bind=none"
plan=threads
ok "a plan of three threads" build threads "$scratch/llama.cfg" $threads
ok "its test build" sealed_build ""
ok "keeps the seal" train "$scratch/sealed"
if test -f "$scratch/count.so"; then
  steps=20
  few=$(count_calls threads | add_calls)
  steps=120
  is "100 steps more make no allocator call more" "$(count_calls threads | add_calls)" "$few"
  matches "one rank counted" "$few" "1 *"
  steps=20
fi
plan=llama

plan=snapshot
ok "a plan with room for a snapshot" build snapshot "$scratch/llama.cfg" -s memory.snapshot=true
ok "its test build" sealed_build ""
ok "saves them while the steps keep the seal" "$scratch/sealed" train --data "$scratch/data.bin" --quiet --steps 6 --save-every 2 \
  --checkpoint "$scratch/ckpt.snapshot"
plan=llama

# Is the test build able to fail? Put an allocation into the step.
sed 's/^static bool run_step(struct pen_vm \*vm) {$/#include <stdlib.h>\n&\n  void *volatile waste = malloc(1);\n  free(waste);/' "$top_srcdir/runtime/exec/host_executor.c" >"$scratch/vm.c"
ok "a build that allocates in the step" sealed_build "$scratch/vm.c"
train "$scratch/sealed"
is "breaks the seal, and is found out" $? 75
matches "by an assertion" "$(complaints "$scratch/err")" "*assertion failed: !sealed && \"malloc\"*"
finish
