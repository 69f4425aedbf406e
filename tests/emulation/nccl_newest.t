#!/bin/sh
# nccl_newest.t: runtime/comm/nccl_api.c against the NCCL of the CUDA toolkit and against the newest on PyPI (nvidia-nccl-cu13), so that the calls of
# both builds exist: with sends alone before 2.29, with puts from then on. A binary that was linked with the newer starts with the older, too.
# NCCL_WHEEL=FILE is a wheel that is there already; else pip fetches it, and what cannot be fetched is skipped.
. "${top_srcdir:-.}/tests/support/lib.sh"
test -f "$top_builddir/libemulated_nccl.a" || skip_all "no CUDA toolkit with NCCL to compile the transport with"

# setting NAME: what configure found.
setting() { sed -n "s/^$1 = //p" "$top_builddir/Makefile"; }

# compiles NAME FLAG...: $scratch/NAME.o, of nccl_calls.c.
compiles() {
  compiles_name=$1
  shift
  $CC $CFLAGS $PEN_CFLAGS -I"$top_srcdir" "$@" $(setting CUDA_CPPFLAGS) -c -o "$scratch/$compiles_name.o" \
    "$top_srcdir/runtime/comm/nccl_api.c"
}

# number FLAG...: the version of that <nccl.h>.
number() { echo 'NCCL_VERSION_CODE' | $CC "$@" $(setting CUDA_CPPFLAGS) -include nccl.h -E -P -x c - | tail -n 1 | sed 's/[^0-9]//g'; }

# check_calls NAME VERSION: the object has puts as its header has them.
check_calls() {
  wanted=0
  if test "$2" -ge 22900; then wanted=1; fi
  is "NCCL $2: puts" "$(nm "$scratch/$1.o" | grep -c ' w ncclPutSignal')" "$wanted"
  is "NCCL $2: sends" "$(nm "$scratch/$1.o" | grep -c ' U ncclSend')" 1
}

toolkit=$(number $(setting NCCL_CPPFLAGS))
ok "the toolkit's NCCL, $toolkit" compiles toolkit $(setting NCCL_CPPFLAGS)
check_calls toolkit "$toolkit"

wheel=${NCCL_WHEEL:-}
if test -z "$wheel"; then
  timeout 300 python3 -m pip --quiet --disable-pip-version-check download --no-deps --only-binary=:all: --dest "$scratch" nvidia-nccl-cu13 \
    >"$scratch/pip" 2>&1 && wheel=$(echo "$scratch"/nvidia_nccl_cu13-*.whl)
fi
if test -z "$wheel"; then
  skip "the newest NCCL" "pip has no nvidia-nccl-cu13 here: $(tail -n 1 "$scratch/pip")"
  finish
fi
ok "a wheel" python3 -m zipfile -e "$wheel" "$scratch"
rm -f "$scratch"/*.whl
there=$scratch/nvidia/nccl
newest=$(number -isystem "$there/include")
ok "the newest NCCL, $newest" compiles newest -isystem "$there/include"
check_calls newest "$newest"
ok "is one with puts" test "$newest" -ge 22900

# A plan for it, with the kernels as the toolkit compiles them.
cat >"$scratch/two.cfg" <<'END_OF_MODEL'
model = { family = "mlp"; layers = 2; hidden = 16; sequence = 8; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 8; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
cluster = { device = "cuda"; transport = "nccl"; };
END_OF_MODEL
link_plan() {
  (cd "$top_builddir" && $CC $CFLAGS -O0 -std=gnu17 -I"$top_srcdir" -c -o "$scratch/$1.o" "$scratch/$1.c" &&
    $CC $CFLAGS -o "$scratch/$1" "$scratch/$1.o" "$scratch/newest.o" libruntime.a -Wl,-u,pen_cuda libkernels_cuda.a \
      -L"$there/lib" -l:libnccl.so.2 $(setting CUDA_LIBS) $KERNEL_ARCHIVES $RUNTIME_LIBS)
}
ok "a binary is linked with it" build two "$scratch/two.cfg"
older=$(setting NCCL_LIBS | sed -n 's/.*-L\([^ ]*\).*/\1/p')
for folder in "$there/lib" "$older"; do
  matches "and starts with that of $(basename "$(dirname "$folder")")" "$(LD_BIND_NOW=1 LD_LIBRARY_PATH="$folder" "$scratch/two" info 2>&1)" \
    "*device        cuda, transport nccl*"
done
finish
