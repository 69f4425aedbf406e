#!/bin/sh
# buckets.t: a binary of several shapes runs each step in the shortest that holds its windows, with the bits of a binary of that shape alone,
# on any topology, in the memory of the largest.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 64; };
batch = { microbatch = 2; packed = true; };
optimizer = { learning_rate = 1e-2; steps = 40; };
pipeline = { ranks = 1; microbatches = 2; schedule = "1f1b"; };
END
cat "$scratch/model.cfg" - >"$scratch/shapes.cfg" <<'END'
shapes = ({ sequence = 32; microbatches = 3; }, { sequence = 16; microbatches = 6; });
END

# documents FIRST LAST: one a line, of as many bytes as that.
documents() {
  awk -v first="$1" -v last="$2" 'BEGIN {
    state = first * 100 + last
    for (d = first; d <= last; d++) {
      for (t = 1; t < d; t++) { state = (state * 16807) % 2147483647; printf "%c", 97 + state % 26 }
      printf "\n"
    }
  }'
}
alone() { "$tokens" --bytes --end-of-text 10 --pack 64 --pad-to 4 --single -o "$scratch/$1.bin" "$scratch/$1.text" 2>/dev/null; }
for k in 1 2 3 4 5; do documents 5 16; done >"$scratch/short.text"  # 60 windows of up to 16: five steps
for k in 1 2 3; do documents 15 32; done >"$scratch/middle.text"    # 54 of up to 32: nine steps of six
{
  documents 5 16   # 12: the first step has 16
  documents 33 36  # 4 of 64
  documents 20 25  # 6 of 32
  documents 5 16   # 12 of 16
  documents 5 10   # 6 of 32, since the next two are long
  documents 40 41
} >"$scratch/mixed.text"
for name in short middle mixed; do ok "$name documents" alone $name; done

# train NAME DATA STEPS OPTION...: leaves NAME.bits.
train() {
  train_name=$1 train_data=$2 train_steps=$3
  shift 3
  anew "$scratch/$train_name.log" "$@"
  "$scratch/$train_name" train --data "$scratch/$train_data.bin" --steps "$train_steps" --seed 7 --quiet --log "$scratch/$train_name.log" "$@" || return 1
  { log_field "$scratch/$train_name.log" loss; log_field "$scratch/$train_name.log" grad_norm
    log_field "$scratch/$train_name.log" tokens; } >"$scratch/$train_name.bits"
}
same() { test "$(wc -l <"$scratch/$1.bits")" -eq "$3" && cmp "$scratch/$1.bits" "$scratch/$2.bits"; }

ok "three shapes are built" build shapes "$scratch/shapes.cfg"
ok "64 alone" build of64 "$scratch/model.cfg"
ok "32 alone" build of32 "$scratch/model.cfg" -s model.sequence=32 -s pipeline.microbatches=3
ok "16 alone" build of16 "$scratch/model.cfg" -s model.sequence=16 -s pipeline.microbatches=6
matches "info lists the shapes" "$("$scratch/shapes" info --json)" \
  '*"shapes":\[{"sequence":16,"microbatches":6},{"sequence":32,"microbatches":3},{"sequence":64,"microbatches":2}\],*'
arena() { "$scratch/$1" info --json | sed 's/.*"arena_bytes":\([0-9]*\),.*/\1/'; }
is "the arena is that of the largest" "$(arena shapes)" "$(for name in of16 of32 of64; do arena $name; done | sort -n | tail -n 1)"

ok "short windows train" train shapes short 5
ok "and in a binary of 16 alone" train of16 short 5
ok "with the same bits" same shapes of16 15
ok "windows of up to 32 train" train shapes middle 9
ok "and in a binary of 32 alone" train of32 middle 9
ok "with the same bits" same shapes of32 27
ok "short windows are forced into 32" train shapes short 10 --shape 32
ok "a binary of 32 trains on them" train of32 short 10
ok "with the same bits" same shapes of32 30

# Mixed windows, step by step: 16, 64, 32, 16. The same from binaries of one shape, each going on where another stopped; for the smaller
# ones, what is longer is cut, which changes no window that their step reads.
for longest in 16 32; do
  awk -v longest=$longest '{ print substr($0, 1, longest - 1) }' "$scratch/mixed.text" >"$scratch/cut$longest.text"
done
ok "mixed windows train" train shapes mixed 4 --checkpoint "$scratch/shapes.ckpt"
: >"$scratch/parts"
part() { # NAME DATA STEP BEFORE: makes that step, of the windows after so many, and adds its loss.
  tail -n +$(($4 + 1)) "$scratch/$2.text" >"$scratch/rest.text" && alone rest &&
    train "$1" rest "$3" --checkpoint "$scratch/parts.ckpt" --resume --new-data 2>/dev/null
  log_field "$scratch/$1.log" loss | tail -n 1 >>"$scratch/parts"
}
part of16 cut16 1 0
part of64 mixed 2 12
part of32 cut32 3 16
part of16 cut16 4 22
is "as steps of one shape each" "$(cat "$scratch/parts")" "$(log_field "$scratch/shapes.log" loss)"
ok "to the same weights" cmp "$scratch/parts.ckpt/latest/model.safetensors" "$scratch/shapes.ckpt/latest/model.safetensors"
is "updates of all shapes count" "$(sed -n '/"updates"/,/}/s/.*: \([0-9]*\),*$/\1/p' "$scratch/shapes.ckpt/latest/manifest.json" | sort -u)" 4
is "each counts the targets of its shape's windows" "$(log_field "$scratch/shapes.log" tokens | tr '\n' ' ')" "114 134 129 114 "
# eval runs every full step: 12 + 4 + 6 + 12 windows, then six short ones in 32, since among twelve there are long ones; two are left.
matches "eval runs all full steps" "$("$scratch/shapes" eval --data "$scratch/mixed.bin" --checkpoint "$scratch/shapes.ckpt" 2>/dev/null)" \
  "*\"tokens\":$((114 + 134 + 129 + 114 + 39))}"

# Topologies: also without a barrier at a step's end, where ranks run apart.
mixed_steps=24
ok "one rank, no clipping" build one "$scratch/shapes.cfg" -s optimizer.clip_norm=0
ok "trains" train one mixed $mixed_steps
while read -r name options; do
  ok "$name is built" build "$name" "$scratch/shapes.cfg" -s optimizer.clip_norm=0 $options
  ok "$name trains" train "$name" mixed $mixed_steps
  ok "$name has the same bits as one rank" same one "$name" $((3 * mixed_steps))
done <<'END'
two     -s pipeline.ranks=2
four    -s pipeline.ranks=4
two_v   -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
END
# With what else changes a plan: on one rank and on two stages a rank in a V.
while read -r options; do
  ok "built with $options" build plain_one "$scratch/shapes.cfg" $options
  ok "and in a V" build plain_v "$scratch/shapes.cfg" $options -s pipeline.ranks=2 -s pipeline.stages_per_rank=2 -s pipeline.schedule=zero_bubble_v
  rm -f "$scratch/plain_one.bits" "$scratch/plain_v.bits"
  ok "trains" train plain_one mixed 12
  ok "trains in a V" train plain_v mixed 12
  ok "with the same bits" same plain_one plain_v 36
done <<'END'
-s model.tie_embeddings=true
-s model.dtype=bf16
-s model.family=gpt2 -s model.kv_heads=4
-s model.family=mistral -s model.window=20
-s memory.recompute=full
-s optimizer.clip_norm=0 -s model.tie_embeddings=true -s model.dtype=bf16
END
# The last once more, with head and embedding on two ranks: each shape has a place of its own for the head's gradient.
ok "tied over two ranks" build plain_loop "$scratch/shapes.cfg" -s optimizer.clip_norm=0 -s model.tie_embeddings=true -s model.dtype=bf16 \
  -s pipeline.ranks=2 -s pipeline.stages_per_rank=2
ok "trains over two ranks" train plain_loop mixed 12
ok "with the same bits over two ranks" same plain_one plain_loop 36
ok "with clipping" build clipped "$scratch/shapes.cfg" -s pipeline.ranks=2
ok "and on one rank" build clipped_one "$scratch/shapes.cfg"
ok "trains" train clipped mixed $mixed_steps --checkpoint "$scratch/clipped.ckpt"
ok "trains on one rank" train clipped_one mixed $mixed_steps --checkpoint "$scratch/clipped_one.ckpt"
ok "the same bits" same clipped clipped_one $((3 * mixed_steps))
ok "and the same weights" cmp "$scratch/clipped.ckpt/latest/model.safetensors" "$scratch/clipped_one.ckpt/latest/model.safetensors"
cp "$scratch/clipped_one.bits" "$scratch/whole.bits"
ok "half of it" train clipped_one mixed 12 --checkpoint "$scratch/half.ckpt"
ok "resumes where it stopped" train clipped_one mixed $mixed_steps --checkpoint "$scratch/half.ckpt" --resume
ok "to the same weights" cmp "$scratch/half.ckpt/latest/model.safetensors" "$scratch/clipped.ckpt/latest/model.safetensors"

# A plain file has windows of the longest, or of the shape that is forced.
make_tokens "$scratch/plain.bin" 4000
ok "a plain file trains" train shapes plain 3
ok "in a binary of 64" train of64 plain 3
ok "with the same bits" same shapes of64 9
ok "and with --shape 16" train shapes plain 3 --shape 16
ok "in a binary of 16" train of16 plain 3
ok "with the same bits" same shapes of16 9

# What is refused.
refused() { # STATUS PATTERN COMMAND...
  refused_status=$1 refused_pattern=$2
  shift 2
  "$@" 2>"$scratch/refusal"
  refused_got=$?
  matches "$(head -n 1 "$scratch/refusal" | sed "s#$scratch/##g")" "$refused_got $(cat "$scratch/refusal")" "$refused_status *$refused_pattern*"
}
refused 64 "--shape 8: this binary's shapes have sequences of 16, 32, 64" "$scratch/shapes" train --data "$scratch/short.bin" --shape 8
refused 64 "--trace follows one shape, and this binary has 3" "$scratch/shapes" train --data "$scratch/short.bin" --trace "$scratch/trace"
refused 65 "windows of up to 44 tokens: sequences of this binary hold 16" "$scratch/shapes" train --data "$scratch/mixed.bin" --shape 16
generate() { "$gen" --check "$@"; }
while IFS='|' read -r pattern shapes options; do
  { cat "$scratch/model.cfg"; echo "$shapes"; } >"$scratch/bad.cfg"
  refused 78 "$pattern" generate $options "$scratch/bad.cfg"
done <<'END'
bad.cfg:5: shapes.sequence = *: at most model.sequence = 64; one is 128|shapes = ({ sequence = 128; microbatches = 1; });
bad.cfg:5: shapes.sequence = *: shapes of different sequences; two have 16|shapes = ({ sequence = 16; microbatches = 1; }, { sequence = 16; microbatches = 2; });
bad.cfg:5: shapes.microbatches = *: pipeline.microbatches = 2 for sequences of model.sequence = 64; it is 3|shapes = ({ sequence = 64; microbatches = 3; });
bad.cfg:5: shapes = *: shape 2 must be { sequence = NUMBER; microbatches = NUMBER; }|shapes = ({ sequence = 16; microbatches = 3; }, { sequence = 16; });
bad.cfg:5: shapes = *: shape 1 must be { sequence = NUMBER; microbatches = NUMBER; }|shapes = (16, 32);
bad.cfg:5: shapes.microbatches = *: a list of whole numbers from 1 to 65536|shapes = ({ sequence = 16; microbatches = 0; });
bad.cfg:5: shapes.sequence = *: none, with schedule search|shapes = ({ sequence = 16; microbatches = 4; });|-s pipeline.schedule=search
bad.cfg:5: shapes.sequence = *: none, with family mlp|shapes = ({ sequence = 16; microbatches = 4; });|-s model.family=mlp
shapes.microbatches: as many as shapes.sequence has, which are 1||-s shapes.sequence=[16]
END
ok "a group of two lists says the same" sh -c "{ cat '$scratch/model.cfg'; echo 'shapes = { sequence = [32, 16]; microbatches = [3, 6]; };'; } >'$scratch/shapes2.cfg' &&
  '$gen' --name=shapes '$scratch/shapes2.cfg' | sed 1,4d >'$scratch/b.c' && '$gen' --name=shapes '$scratch/shapes.cfg' | sed 1,4d >'$scratch/a.c' && cmp '$scratch/a.c' '$scratch/b.c'"
finish
