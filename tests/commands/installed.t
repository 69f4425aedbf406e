#!/bin/sh
# installed.t: what make install installs makes deployments by itself: penstock-build, also from where a prefix has been moved to.
. "${top_srcdir:-.}/tests/support/lib.sh"
(cd "$top_builddir" && unset MAKEFLAGS MFLAGS MAKELEVEL && make install TOPOLOGY= DESTDIR="$scratch/root" prefix=/usr exec_prefix=/usr bindir=/usr/bin \
  libdir=/usr/lib includedir=/usr/include) >"$scratch/log" 2>&1 || tail -n 20 "$scratch/log" | sed 's/^/# /'
mv "$scratch/root/usr" "$scratch/prefix"
build=$scratch/prefix/bin/penstock-build
ok "it is installed" test -x "$build"
mkdir "$scratch/elsewhere" "$scratch/here"
cat >"$scratch/elsewhere/mine.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; kv_heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
optimizer = { learning_rate = 1e-3; steps = 1000; };
cluster = { device = "cpu"; };
END
make_tokens "$scratch/data.bin" 20000
cd "$scratch/here" || exit 1
# Nothing of the sources or of the build is needed.
alone() { env -i PATH="$PATH" HOME="$HOME" "$@"; }
ok "a topology is built" alone "$build" ../elsewhere/mine.cfg
is "into the current folder, alone" "$(ls . ../elsewhere | tr '\n' ' ')" ".: penstock-mine  ../elsewhere: mine.cfg "
mv penstock-mine "$scratch/mine"
ok "it trains" train_bits mine --data "$scratch/data.bin" --steps 3
cd "$OLDPWD" || exit 1
ok "as one of the build folder" build same "$scratch/elsewhere/mine.cfg"
train_bits same --data "$scratch/data.bin" --steps 3
is "to the same bits" "$(cat "$scratch/mine.bits")" "$(cat "$scratch/same.bits")"
ok "it is measured" "$scratch/mine" measure --seconds 1 --output "$scratch/costs.json"
cd "$scratch/here" || exit 1
ok "settings, a name and costs are taken" alone "$build" -s pipeline.ranks=1 --name=other --costs=../costs.json --library ../elsewhere/mine.cfg
matches "as they say" "$(./penstock-other info --json | tr -d ' \n')" '*"ranks":1,*"unit":"inms",*'
ok "a program is made with its library" $CC $CFLAGS -DLIBRARY=other -I"$scratch/prefix/include" -o loop "$top_srcdir/tests/support/library_loop.c" ./libpenstock-other.so
ok "it trains" ./loop "$scratch/data.bin" 16 tokens:I32 targets:I32 2 saved
ok "and saves" test -f saved/step-00000002/model.safetensors
if "${PYTHON:-python3}" -c 'import numpy' 2>/dev/null; then
  ok "so does Python" env PYTHONPATH="$scratch/prefix/share/penstock/python" PYTHONDONTWRITEBYTECODE=1 "${PYTHON:-python3}" -c '
import numpy, penstock
run = penstock.open("libpenstock-other.so")
run.step({name: numpy.zeros((run.samples(), 16), numpy.int32) for name in ("tokens", "targets")})
run.save("python")
run.close()'
  ok "and saves, too" test -f python/step-00000001/model.safetensors
else
  skip "Python" "no numpy"
fi
if test -n "$OFI_ARCHIVES"; then
  ok "so are messages by libfabric" alone "$build" --set=cluster.transport=ofi --name=ofi ../elsewhere/mine.cfg
  ok "they train" ./penstock-ofi train --data "$scratch/data.bin" --steps 1 --quiet
else
  skip "messages by libfabric" "no libfabric here"
fi
alone PATH="${build%/*}:$PATH" STEPS=4 SETTINGS='model.layers=2 model.hidden=32 model.ffn=48' "$top_srcdir/docs/recipes/pretrain/run" recipe \
  >recipe.out 2>&1 || sed 's/^/# /' recipe.out
ok "a recipe is run with it" test -f recipe/checkpoints/step-00000004/model.safetensors
# refused NAME STATUS PATTERN ARGUMENT...
refused() {
  refused_name=$1 refused_status=$2 refused_pattern=$3
  shift 3
  alone "$build" "$@" 2>err
  is "$refused_name: status" $? "$refused_status"
  matches "$refused_name: message" "$(complaints err)" "$refused_pattern"
}
refused "no topology" 64 "penstock-build: TOPOLOGY.cfg is missing*"
refused "an unknown option" 64 "penstock-build: --fast: no such option*" --fast ../elsewhere/mine.cfg
refused "the name of a program" 64 "penstock-build: penstock-gen is a program of Penstock*" --name=gen ../elsewhere/mine.cfg
refused "a wrong setting" 78 "*pipeline.ranks*" -s pipeline.ranks=0 ../elsewhere/mine.cfg
refused "no such file" 66 "*nothing.cfg*" nothing.cfg
finish
