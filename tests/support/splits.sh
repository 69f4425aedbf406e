# splits.sh: what tests of split weights (tensor_parallel.splits) share. A test sources this after lib.sh.

# compare_splits: of each line MODEL SPLITS NAME OPTION... of the input, trains $scratch/MODEL_SPLITS_NAME for three steps; the runs of a model in a
# number of splits have the bits of the one with the name one.
compare_splits() {
  while read -r splits_model splits_count splits_name splits_options; do
    echo "$splits_model ${splits_count}_$splits_name -s tensor_parallel.splits=$splits_count $splits_options"
  done >"$scratch/runs"
  compare_runs 3 <"$scratch/runs"
}

# near_whole MODEL...: with one rank, 2 splits have other bits than whole weights, and almost their losses and norms.
near_whole() {
  for whole in "$@"; do
    ok "$whole: other bits in 2 splits than whole (the test can tell)" other_bits "${whole}_1_one" "${whole}_2_one"
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
