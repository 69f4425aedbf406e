#!/bin/sh
# library_python.t: the loop of the README by tools/python/penstock.py has the losses of train; errors have train's status and message; a loop of
# GRPO raises its reward.
. "${top_srcdir:-.}/tests/support/lib.sh"
find_python 'import numpy' "${PYTHON:-python3}" || skip_all "no Python with numpy here: set PEER"
cd "$scratch" || exit 99
. "$top_srcdir/tests/support/library.sh"
make_tokens text.bin 199 # of windows of 16, three steps of four
cat >mine.cfg <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 64; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; warmup_steps = 2; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
END
PYTHONPATH=$top_srcdir/tools/python PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONDONTWRITEBYTECODE
ok "a plan" build mine mine.cfg -s 'model.outputs=["logits"]'
ok "a library" library mine
ok "it trains" train_bits mine --data text.bin --steps 3
awk '/^    import numpy, penstock/ { on = 1 } /^[^ ]/ { on = 0 } on' "$top_srcdir/README.md" | sed 's/^    //; s/128/16/' >loop.py
"$python" loop.py >found 2>&1
is "the loop of the README ends" $? 0
log_field mine.log loss >losses
log_field mine.log grad_norm | paste -d ' ' losses - >wanted
same_numbers() { "$python" -c 'import sys; a, b = ([float(x) for x in open(f).read().split()] for f in sys.argv[1:]); sys.exit(a != b or len(a) != 6)' "$1" "$2"; }
ok "losses and norms are those of train" same_numbers found wanted
ok "the model of train" cmp loop/latest/model.safetensors mine.ckpt/latest/model.safetensors
./mine eval --data text.bin --checkpoint loop --steps 2 --quiet --outputs outputs.safetensors >evaluated
cat >calls.py <<'END'
import os, signal, threading
import numpy, penstock

def refused(call):
    try:
        call()
    except penstock.Error as error:
        print(error.status, error.message)

windows = {name: numpy.zeros((4, 16), numpy.int64) for name in ("tokens", "targets")}
data = numpy.fromfile("text.bin", numpy.uint16, offset=1024).astype(numpy.int32)
given = [{"tokens": data[first : first + 64].reshape(4, 16), "targets": data[first + 1 : first + 65].reshape(4, 16)} for first in (0, 64)]

def numbers(found):
    assert found.pop("logits").shape == (4, 16, 256)
    return found

refused(lambda: penstock.open("libpenstock-mine.so", options=["--steps", "3"]))
refused(lambda: penstock.open("libpenstock-mine.so", options=["--help"]))
refused(lambda: penstock.open("libpenstock-mine.so", options=["--init", "a\0b"]))
with penstock.open("libpenstock-mine.so", seed=7) as run:
    run.load("loop")
    loaded = numbers(run.evaluate(windows))
    scores = run.score(windows)
    assert scores.shape == (4, 16) and abs(scores.mean() + loaded["loss"]) < 1e-6
    found = [run.evaluate(samples)["logits"] for samples in given]
    assert b"".join(logits.tobytes() for logits in found) == open("outputs.safetensors", "rb").read()[-8 * 16 * 256 * 4 :]
    name = "model.norm.weight"
    run.set_weights(name, run.weights(name) * 2)
    assert (run.weights(name) > 1).all() and run.weights(name).shape == run.shapes[name] == (32,)
    assert numbers(run.evaluate(windows)) != loaded and loaded["tokens"] == 64
    refused(lambda: run.step({"tokens": numpy.zeros((2, 16), numpy.int64)}))
    before = numbers(run.step(windows))
    run.load("loop")
    assert numbers(run.evaluate(windows)) == loaded
    assert (run.step(given[0])["logits"] == found[0]).all()
    run.load("loop")
    one, two = run.generate([[65, 66, 67], [68]], 10, temperature=0)
    assert one.shape == (10,) and (run.generate([[68], [69]], 4, temperature=0)[0] == two[:4]).all()
    run.load("loop")
    assert run.generate([[68]], 10, temperature=0, end_of_text=int(two[2]))[0].tolist() == two[: two.tolist().index(two[2]) + 1].tolist()
    run.set_weights(name, run.weights(name) * 2)
    assert numbers(run.step(windows)) == before
    run.learning_rate = 0.5
    run.step(windows)
    print(run.learning_rate)
    # arrays of other kinds have the same values
    run.load("loop")
    wanted = run.score(given[0])
    tokens, targets = given[0]["tokens"], given[0]["targets"]
    for other in ((tokens.tolist(), targets.tolist()), (tokens.astype(">i4"), targets.T.copy().T)):
        assert (run.score({"tokens": other[0], "targets": other[1]}) == wanted).all()
    try:
        import torch
    except ImportError:
        torch = None
    if torch is not None:
        found = run.score({"tokens": torch.from_numpy(tokens), "targets": torch.from_numpy(targets.astype("i8")).T.contiguous().T})
        assert (found == wanted).all()
        rounded = torch.arange(32, requires_grad=True, dtype=torch.float32).bfloat16()
        run.set_weights(name, rounded)
        assert (run.weights(name) == numpy.arange(32)).all()
        refused(lambda: run.step({"tokens": rounded, "targets": targets}))
    else:
        print("65 penstock: samples: input tokens: it is BF16 [32], and I32 or I64 [samples, 16] is wanted")
    refused(lambda: run.step({"tokens": [[1], [2, 3]], "targets": targets}))
    refused(lambda: run.step({"tokens": tokens.astype(float), "targets": targets}))
    refused(lambda: run.set_weights(name, [float("nan")] * 32))
    refused(lambda: run.set_weights(name, numpy.ones((4, 8))))
    refused(lambda: run.generate([[1]], 4, top_k=-1))
    refused(lambda: run.generate([[-1]], 4))
    refused(lambda: run.samples("steps"))
    refused(lambda: setattr(run, "learning_rate", 1e39))
    refused(lambda: run.load("mine.cfg"))
    # Ctrl-C while steps run: the run goes on
    try:
        threading.Thread(target=os.kill, args=(os.getpid(), signal.SIGINT)).start()
        while True:
            run.step(windows)
    except KeyboardInterrupt:
        print("interrupted")
    run.step(windows)
    child = os.fork()
    if child == 0:  # as a worker of a data loader
        refused(lambda: run.step(windows))
        run.close()
        os._exit(0)
    os.waitpid(child, 0)
    run.save("saved")
    os.chdir("saved")
    run.load(".")
    os.chdir("..")
run.close()
refused(lambda: run.step(windows))
started = open("/proc/thread-self/children").read
forgotten = penstock.open("libpenstock-mine.so")
print(len(started().split()))
del forgotten
print(len(started().split()))
refused(lambda: penstock.open("libpenstock-none.so"))
refused(lambda: penstock.open("mine.so"))
END
"$python" -u -W ignore calls.py >found 2>&1
is "calls end" $? 0
is "with their results" "$(sed 's/process [0-9]*/process P/; s/memory: .*/memory: .../; s/none.so: .*/none.so: .../' found)" "64 penstock: --steps: not with a library, whose caller gives each step's samples
64 penstock: --help: not with a library
64 penstock: open: 'a\\x00b': a text without a byte of 0
65 penstock: samples: input tokens: 2 samples, and a step reads 4
0.5
65 penstock: samples: input tokens: it is BF16 [32], and I32 or I64 [samples, 16] is wanted
65 penstock: samples: input tokens: no array of numbers in this process's memory: ...
65 penstock: samples: input tokens: it is float64 [4, 16], and I32 or I64 [samples, 16] is wanted
65 penstock: weights: tensor model.norm.weight: element 0 is not finite
65 penstock: weights: tensor model.norm.weight: it is [4, 8], and [32] is wanted
64 penstock: generate: top_k -1: a number from 0 on
65 penstock: generate: text 0: token 0 is 4294967295: the model's vocab is 256
64 penstock: samples: 'steps': one of step, evaluate, score
64 penstock: learning rate 1e+39: a number from 0 to 3.4e38
66 penstock: $PWD/mine.cfg: Not a directory
interrupted
64 penstock: the session is of process P, which has forked this one: open another
64 penstock: step: the run is closed
1
0
66 penstock: libpenstock-none.so: ...
64 penstock: mine.so: not the name of a library, libpenstock-NAME.so"

# ---- GRPO, and what the same model with cross entropy scores ----
cp "$top_srcdir/tests/models/grpo_small.json" policy.json
"$python" - <<'END'
import json
model = json.load(open("policy.json"))
model["inputs"] = model["inputs"][:2]
del model["shares"]
head = model["kinds"]["head"]
head["ops"] = [head["ops"][0], ["CROSS_ENTROPY", ["logits", "taken", "taken.share"], {}, ["loss"]]]
json.dump(model, open("texts.json", "w"))
layer = model["kinds"]["layer"]["ops"]
layer[0][1][0] = "seen"
layer.insert(0, ["ATTENTION_FULL", ["x", "x", "x"], {"heads": 3, "kv_heads": 3, "head_dim": 8}, ["seen"], "sees.py:3"])
json.dump(model, open("sees.json", "w"))
END
# described NAME RANKS: the model NAME.json and its library.
described() {
  cat >"$1.cfg" <<END
model = { family = "described"; description = "$1.json"; sequence = 16; };
batch = { microbatch = 4; };
optimizer = { learning_rate = 2e-2; steps = 1000; };
pipeline = { ranks = $2; microbatches = 4; schedule = "1f1b"; };
END
  build "$1" "$1.cfg" && library "$1"
}
ok "a policy" described policy 2
ok "the same model with cross entropy" described texts 1
ok "one whose tokens see later ones" described sees 1
cat >scores.py <<'END'
import numpy, penstock

random = numpy.random.default_rng(1)
tokens, taken = random.integers(0, 32, (2, 16, 16))
taken[:, 3::4] = -100
samples = {"idx": tokens, "taken": taken}
with penstock.open("libpenstock-policy.so", seed=7) as policy, penstock.open("libpenstock-texts.so", seed=7) as texts:
    wanted = texts.score(samples)
    assert (numpy.isnan(wanted) == (taken < 0)).all() and policy.samples("score") == 256
    for given in (samples, {**samples, "mask": numpy.zeros((1, 1))}):  # what only the loss reads may be anything
        assert policy.score(given).tobytes() == wanted.tobytes()
    one, two = (run.generate(tokens[:2, :4], 12, temperature=1) for run in (policy, texts))
    assert [text.tolist() for text in one] == [text.tolist() for text in two]
    for given in ({"idx": tokens}, {**samples, "masks": taken}):
        try:
            policy.score(given)
        except penstock.Error as error:
            print(error)
with penstock.open("libpenstock-sees.so") as sees:
    for call in (lambda: sees.score(samples), lambda: sees.generate([[1]], 4)):
        try:
            call()
        except penstock.Error as error:
            print(error.status, error)
END
"$python" scores.py >found 2>&1
is "a policy scores and generates as with cross entropy" "$? $(cat found)" "0 penstock: samples: input taken: missing; I64 [samples, 16] is wanted
penstock: samples: tensor masks: not an input of the model, which are idx, taken, old, reference, advantage, mask
64 penstock: score: the model reads more than texts have: unit layer, op 0, ATTENTION_FULL (sees.py:3): later tokens, or those of other samples
64 penstock: generate: the model reads more than texts have: unit layer, op 0, ATTENTION_FULL (sees.py:3): later tokens, or those of other samples"
"$python" "$top_srcdir/tests/commands/library_grpo.py" >rewards 2>&1
is "the loop ends" $? 0
ok "its reward rises" awk 'NR <= 5 { first += $1 / 5 } NR > 20 { last += $1 / 5 } END { print "# from " first " to " last; exit !(NR == 25 && last > first + 0.4) }' rewards
finish
