# pieces.sh: what tests of split weights (tensor_parallel.splits) share. A test sources this after lib.sh.

# compare_pieces: of each line MODEL PIECES NAME OPTION... of the input, trains $scratch/MODEL_PIECES_NAME for three steps; the runs of a model in a
# number of pieces have the bits of the one with the name one.
compare_pieces() {
  while read -r pieces_model pieces_count pieces_name pieces_options; do
    echo "$pieces_model ${pieces_count}_$pieces_name -s tensor_parallel.splits=$pieces_count $pieces_options"
  done >"$scratch/runs"
  compare_runs 3 <"$scratch/runs"
}

# near_whole MODEL...: with one rank, 2 pieces have other bits than whole weights, and almost their losses and norms.
near_whole() {
  for whole in "$@"; do
    ok "$whole: other bits in 2 pieces than whole (the test can tell)" other_bits "${whole}_1_one" "${whole}_2_one"
    ok "$whole: almost the same losses and norms" close_to "${whole}_1_one" "${whole}_2_one" 1e-4
  done
}

# generate FAMILY_NAME OPTION...: what FAMILY_NAME writes, from FAMILY's checkpoint; both are in this folder.
generate() {
  generate_name=$1
  shift
  "./$generate_name" generate --checkpoint "${generate_name%%_*}.ckpt" --quiet "$@"
}

# prepare_prompts: sets prompt, and writes `prompts` of four. There are more tokens than bytes, so texts are numbers.
prepare_prompts() {
  prompt='65 66 67 68 69 70 71 72'
  printf '{"prompt": "%s"}\n' "$prompt" '43 74 57 46 99' '81 82' 60 >prompts
}
