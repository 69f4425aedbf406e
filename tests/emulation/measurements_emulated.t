#!/bin/sh
# measurements_emulated.t: tests/gpu/bench, hop and device_ops over the backend compiled for the host: which rows and tests a word chooses, and what
# a row says. Rates mean nothing here; sizes are small.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/emulation/emulated.sh"
programs=$top_builddir/tests/gpu

# rows NAME WORD...: runs bench with these words; NAME.rows has the rows without the line of the device.
rows() {
  rows_name=$1
  shift
  "$programs/bench_emulated" "$@" >"$scratch/$rows_name.out" 2>&1 || return 1
  sed 1d "$scratch/$rows_name.out" >"$scratch/$rows_name.rows"
}
# others NAME PATTERN: how many rows of NAME do not match.
others() { grep -cv "$2" "$scratch/$1.rows"; }

ok "bench attention" rows attention Attention
is "it measures both kernels of ten shapes, and nothing else" "$(wc -l <"$scratch/attention.rows") $(others attention '^ATTENTION\(_DX\)\? bf16 ')" '20 0'
ok "the rows of a model" rows model LLAMA_1B
is "they are attention and products, forward and backward" "$(sed 's/^  algorithms.*/algorithms/; s/ .*//' "$scratch/model.rows" | sort | uniq -c | xargs)" \
  '1 ATTENTION 1 ATTENTION_DX 7 LINEAR 7 LINEAR_DW 7 LINEAR_DX 21 algorithms'
of='tile 128x256, stages 64x4, split-k [14], waves [01]\.[0-9]*'
is "each product has its algorithms, of which one is not valid" \
  "$(grep -c "^  algorithms: first [0-9.]* us, best [0-9.]* us of 2; first: $of; best: $of\$" "$scratch/model.rows")" 21
ok "a copy and AdamW" rows memory copy adamw
is "the copy comes first, to which rates relate" "$(sed 's/^\([a-z]*\) .* us .*GB.s .*of copy$/\1/' "$scratch/memory.rows" | xargs)" 'copy adamw'
ok "AdamW" rows adamw adamw
is "alone it relates to nothing" "$(grep -c 'of copy' "$scratch/adamw.rows")" 0
ok "a product for a while" rows sustained sustained
matches "has the rate at its begin and at its end" "$(cat "$scratch/sustained.rows")" "sustained * first * ms * TFLOP/s, last * ms * TFLOP/s"
fails "a word of no row" 64 'no row has one of these words' "$programs/bench_emulated" nonsense

"$programs/hop_emulated" >"$scratch/hop" 2>&1
is "hop's first row is the smallest message's" "$(sed -n 's/^ipc hop *\([0-9]*\) *[0-9.]* us .*/\1/p' "$scratch/hop" | head -n 1)" 64

# tests OPTION...: the names of the tests that device_ops runs.
tests() { CMOCKA_MESSAGE_OUTPUT=TAP "$programs/device_ops_emulated" "$@" | sed -n 's/^ok [0-9]* - //p' | LC_ALL=C sort; }
all=$(tests)
is "--only and --skip share out the tests" "$({ tests --only '*graph*' && tests --skip '*graph*'; } | LC_ALL=C sort)" "$all"
is "--only takes a pattern" "$(tests --only 'two_ranks_in_*' | xargs)" 'two_ranks_in_one_process_marked two_ranks_in_one_process_serial'
fails "a pattern of no test" 64 'usage: device_ops' "$programs/device_ops_emulated" --only nonsense
finish
