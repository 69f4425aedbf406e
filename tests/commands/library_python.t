#!/bin/sh
# library_python.t: a loop in Python by tools/python/penstock.py has the losses of train; its errors have train's status and message.
. "${top_srcdir:-.}/tests/support/lib.sh"
python=${PYTHON:-python3}
"$python" -c 'import numpy' 2>/dev/null || skip_all "no numpy"
cd "$scratch" || exit 99
. "$top_srcdir/tests/support/library.sh"
make_tokens data.bin 1500
cat >family.cfg <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 64; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
END
ok "a plan" build family family.cfg
ok "a library" library family
ok "it trains" train_bits family --data data.bin --steps 3
cat >loop.py <<'END'
import numpy, penstock

data = numpy.fromfile("data.bin", numpy.uint16)[512:].astype(numpy.int64)
run = penstock.open("./libpenstock-family.so", seed=7)
windows = data[: (len(data) - 1) // 16 * 16]
for s in range(3):
    first = s * run.samples() * 16
    part = slice(first, first + run.samples() * 16)
    step = run.step({"tokens": data[part].reshape(-1, 16), "targets": data[1:][part].reshape(-1, 16)})
    print("%.17g %.17g" % (step["loss"], step["grad_norm"]))
run.save("saved")
name = "model.norm.weight"
run.set_weights(name, run.weights(name) * 2)
assert (run.weights(name) > 1).all() and run.weights(name).shape == (32,)
try:
    run.step({"tokens": data[:32].reshape(-1, 16)})
except penstock.Error as error:
    print(error.status, error.message)
run.close()
END
PYTHONPATH="$top_srcdir/tools/python" PYTHONDONTWRITEBYTECODE=1 "$python" loop.py >found 2>&1
is "the loop ends" $? 0
log_field family.log loss >losses
log_field family.log grad_norm | paste -d ' ' losses - >wanted
echo '65 penstock: samples: input tokens: 2 samples, and a step reads 4' >>wanted
is "losses, norms and an error are those of train" "$(cat found)" "$(cat wanted)"
ok "the model of train" cmp saved/latest/model.safetensors family.ckpt/latest/model.safetensors
finish
