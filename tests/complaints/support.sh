# support.sh: what the tests of complaints share: the small model that most of them train.
. "${top_srcdir:-.}/tests/support/lib.sh"
cd "$scratch" || exit 99
cat >llama.cfg <<'END'
model = { family = "llama"; layers = 8; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 1; microbatches = 4; schedule = "1f1b"; };
END
make_tokens data.bin 20000

# train STEPS NAME SETTING...: builds and trains the model with these settings.
train() {
  train_steps=$1 train_name=$2
  shift 2
  for setting; do set -- "$@" -s "$setting"; shift; done
  train_model "$train_steps" "$train_name" llama "$@"
}

# same STEPS NAME SETTING...: trains, to the bits of `one`.
same() {
  train "$@" && same_bits "$1" one "$2"
}

# close STEPS NAME SETTING...: trains, to the losses and norms of `one` but for rounding.
close() {
  train "$@" && close_to one "$2" 1e-5
}
