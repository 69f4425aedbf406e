#!/bin/sh
# library.t: a program that gives its samples to a library has the losses, norms and checkpoints of train on the same windows.
. "${top_srcdir:-.}/tests/support/lib.sh"

cd "$scratch" || exit 99
make_tokens data.bin 1500 # 93 windows of 16 tokens
cp "$top_srcdir/tests/models/nano.json" .
sed 's/, "from": "t[a-z]*"//' nano.json >named.json
cat >named.cfg <<'END'
model = { family = "described"; description = "named.json"; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
cat >family.cfg <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 64; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
END
samples() { "${PYTHON:-python3}" "$top_srcdir/tests/support/samples.py" "$@"; } # OUT FIRST COUNT TOKENS SEQUENCE NAME:DTYPE:WHAT...
samples all.safetensors 0 93 data.bin 16 idx:I32:tokens targets:I64:targets

# library NAME: the library of the binary NAME, as `make lib` links it, and the program NAME.loop.
library() {
  ln -s "$1" "penstock-$1"
  printf '#include "runtime/library/penstock.h"\nextern PEN_API const struct pen_library pen_library_%s;\nconst struct pen_library pen_library_%s = {"%s"};\n' \
    "$1" "$1" "$1" >"$1.library.c"
  $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" -fPIC -fvisibility=hidden -shared -Wl,-Bsymbolic -Wl,-z,defs -o "libpenstock-$1.so" "$1.library.c" \
    -Wl,--whole-archive "$top_builddir/libclient.a" -Wl,--no-whole-archive -ldl &&
    $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir/runtime/library" -DLIBRARY="$1" -o "$1.loop" "$top_srcdir/tests/support/library_loop.c" \
      "./libpenstock-$1.so" '-Wl,-rpath,$ORIGIN'
}
# as_train NAME TOKENS TARGETS: three steps of NAME.loop have what train's three steps have.
as_train() {
  ok "$1: a library" library "$1"
  ./"$1.loop" data.bin 16 "$2" "$3" 3 "$1.saved" --seed 7 >"$1.found"
  is "$1: the program ends" $? 0
  log_field "$1.log" loss >"$1.losses"
  log_field "$1.log" grad_norm | paste -d ' ' "$1.losses" - >"$1.wanted"
  is "$1: losses and norms of train" "$(cat "$1.found")" "$(cat "$1.wanted")"
  for file in model.safetensors optimizer.safetensors config.json; do
    ok "$1: the $file of train" cmp "$1.saved/latest/$file" "$1.ckpt/latest/$file"
  done
}
ok "family: a plan" build family family.cfg
ok "family trains" train_bits family --data data.bin --steps 3
as_train family tokens:I32 targets:I64
is "each exported symbol begins with pen_" "$(nm -D --defined-only libpenstock-family.so | awk '$3 !~ /^pen_/')" ""
ok "named: a plan" build named named.cfg
ok "named trains" train_bits named --data all.safetensors --steps 3
as_train named idx:I64 targets:I32
ok "two: a plan" build two named.cfg -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s 'pipeline.schedule="interleaved"'
ok "two trains" train_bits two --data all.safetensors --steps 3
as_train two idx:I32 targets:I32

# ---- errors are values ----
# refused NAME STATUS MESSAGE PROGRAM ARGUMENT...
refused() {
  refused_name=$1 refused_status=$2 refused_message=$3
  shift 3
  "$@" >out 2>err
  is "$refused_name: status" $? "$refused_status"
  is "$refused_name: message" "$(tail -n 1 err)" "$refused_message"
}
wanted='I32 or I64 [samples, 16] is wanted'
loop='./named.loop data.bin'
refused "another name" 65 "penstock: samples: input targets: missing; $wanted" $loop 16 idx:I32 target:I32 1 x
refused "another dtype" 65 "penstock: samples: input idx: it is F32 [4, 16], and $wanted" $loop 16 idx:F32 targets:I32 1 x
refused "other extents" 65 "penstock: samples: input idx: it is I32 [4, 8], and $wanted" $loop 8 idx:I32 targets:I32 1 x
refused "an option of data" 64 "penstock: --steps: not with a library, whose caller gives each step's samples" \
  $loop 16 idx:I32 targets:I32 1 x --steps 3
refused "absent weights" 66 "penstock: none.safetensors: No such file or directory" $loop 16 idx:I32 targets:I32 1 x --init none.safetensors
refused "a folder that cannot be" 73 "penstock: $scratch/data.bin: cannot create: Not a directory; step 1 is not saved, training continues" \
  $loop 16 idx:I32 targets:I32 1 data.bin
rm penstock-named
refused "no binary" 66 "penstock: ./penstock-named: No such file or directory" $loop 16 idx:I32 targets:I32 1 x
finish
