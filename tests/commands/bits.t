#!/bin/sh
# bits.t: with our own products (PEN_PRODUCTS=own) a fixed run has the losses, norms and checkpoints of tests/golden/bits for each
# instruction set that this processor has, and the same when gcc compiles kernels with -O3 (AVX2), or clang with -O2 (the two best sets).
#
#   bits.t          the test
#   bits.t --list   the lines of tests/golden/bits for this processor
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/kernels.sh"
golden=$(cd "$top_srcdir" && pwd)/tests/golden/bits
makefile=$(cd "$top_builddir" && pwd)/Makefile

cat >"$scratch/llama.cfg" <<'END'
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
model = { family = "llama"; layers = 3; hidden = 72; heads = 4; kv_heads = 2; head_dim = 18; ffn = 104; vocab = 257; sequence = 37; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 4; };
END
sed 's/"llama"/"gpt2"/; s/kv_heads = 2; head_dim = 18; //' "$scratch/llama.cfg" >"$scratch/gpt2.cfg"
make_tokens "$scratch/data.bin" 3000

# compile COMPILER LEVEL: the kernels of $kernel_sets, and what of the runtime computes, in $scratch/COMPILERLEVEL/.
compile() {
  mkdir "$scratch/$1$2"
  case $1 in clang) vector_flags= ;; *) vector_flags=$(sed -n 's/^VECTOR_CFLAGS = //p' "$makefile") ;; esac
  compile_kernels "$makefile" "$top_srcdir" "$1" "$2 -fno-math-errno -ffp-contract=off $vector_flags" "$scratch/$1$2" \
    runtime/comm/step_stats.c runtime/base/learning_rate.c runtime/exec/optimizer_step.c
}
# link NAME FOLDER: $scratch/other, the binary of a plan with the objects of that folder, and the kernels of other sets as they were built.
link() {
  (cd "$top_builddir" && $CC $CFLAGS -o "$scratch/other" "$scratch/$1.o" "$2"/*.o libruntime.a \
    $(echo "$KERNEL_ARCHIVES" | tr ' ' '\n' | grep -vE "^libkernels(-(${kernel_sets})(-bf16)?)?\.a$") $RUNTIME_LIBS)
}

# bits_of BINARY SET: losses and norms of four steps, and the SHA-256 of both files of the checkpoint.
bits_of() {
  (cd "$scratch" && rm -rf ckpt log &&
    PEN_PRODUCTS=own PEN_ISA=$2 "$1" train --data data.bin --seed 7 --quiet --log log --checkpoint ckpt 2>err &&
    echo $(log_field log loss) $(log_field log grad_norm) $(cd ckpt/latest && sha256sum <model.safetensors | cut -c1-64) \
      $(cd "$scratch/ckpt/latest" && sha256sum <optimizer.safetensors | cut -c1-64))
}
# runs SET: whether the kernels of that set run here; the binary says which it chose.
runs() {
  PEN_PRODUCTS=own PEN_ISA=$1 "$scratch/llama-f32" train --data "$scratch/data.bin" --steps 1 2>&1 | grep -qw "$1"
}
models="llama-f32 llama-bf16 gpt2-f32 gpt2-bf16"
sets="baseline avx2 avx512 avx512bf16"

for model in $models; do
  ok "$model: a plan is built" build "$model" "$scratch/${model%-*}.cfg" -s model.dtype="${model#*-}"
done >"$scratch/built"
sets_here=$(for set in $sets; do if runs "$set"; then echo "$set"; fi; done)
has() { echo "$sets_here" | grep -qx "$1"; }
if test "${1-}" = --list; then
  for set in $sets_here; do
    for model in $models; do echo "$model $set $(bits_of "$scratch/$model" "$set")"; done
  done
  exit
fi
cat "$scratch/built"

for set in $sets; do
  for model in $models; do
    if ! has "$set"; then
      skip "$model, $set" "this processor, or this build, lacks $set"
      continue
    fi
    wanted=$(sed -n "s/^$model $set //p" "$golden")
    is "$model, $set: as listed" "$(bits_of "$scratch/$model" "$set")" "${wanted:-no line in tests/golden/bits}"
  done
done

# compiled COMPILER LEVEL SET...: the bits with kernels that this compiler makes for these sets. (The build is by gcc with -O2.)
compiled() {
  name="$1 $2" compiler=$1 level=$2
  shift 2
  kernel_sets=$(echo "$@" | tr ' ' '|')
  if test -z "$kernel_sets" || ! command -v "$compiler" >/dev/null; then
    skip "$name" "$compiler, or a set of instructions, is not here"
    return
  fi
  ok "$name: kernels are compiled" compile "$compiler" "$level"
  for model in $models; do
    ok "$name: $model" link "$model" "$scratch/$compiler$level"
    for set; do
      is "$name: $model, $set" "$(bits_of "$scratch/other" "$set")" "$(sed -n "s/^$model $set //p" "$golden")"
    done
  done
}
compiled gcc -O3 $(echo "$sets_here" | grep -x avx2)
compiled clang -O2 $(echo "$sets_here" | tail -n 2)
finish
