#!/bin/sh
# clang.t: our C is without a warning under clang too, as far as it shows without making code. (gcc is what make check builds with.)
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/kernels.sh"
command -v clang >/dev/null || skip_all "clang is not here"

makefile=$top_builddir/Makefile
value() { sed -n "s/^$1 = //p" "$makefile"; } # of a variable
built() { grep -q "^$1_a_CFLAGS = " "$makefile"; } # whether configure wants that library
flags="-Werror $(value PEN_CFLAGS) -I. -I$(cd "$top_builddir" && pwd) $(value JANSSON_CFLAGS) $(value NETTLE_CFLAGS) $(value LIBCONFIG_CFLAGS)
  $(value CMOCKA_CFLAGS) $(value CBLAS_CFLAGS)"
cuda=$(value CUDA_CPPFLAGS)
cd "$top_srcdir" || exit 99

# looks_at FLAGS FILE...: a line a file, for compile.
looks_at() {
  looks_flags=$1
  shift
  for file; do echo $flags $looks_flags "$file"; done
}

# compile NAME: reads lines of looks_at, two at a time.
compile() {
  xargs -P 2 -L 1 clang -fsyntax-only -fno-caret-diagnostics <"$scratch/lines" >"$scratch/warnings" 2>&1
  compile_status=$?
  ok "$1: $(wc -l <"$scratch/lines") compilations" test $compile_status -eq 0 -a -s "$scratch/lines"
  sed 's/^/# /' "$scratch/warnings"
}

looks_at "" gen/*.c gen/*/*.c >"$scratch/lines"
compile "the generator"
looks_at "" $(ls tools/*.c tools/*/*.c runtime/*.c runtime/*/*.c | grep -vE '/(nccl_api|fabric|hop_mpi)\.c') >"$scratch/lines"
if test -n "$OFI_ARCHIVES"; then looks_at "$(value OFI_CFLAGS)" runtime/comm/fabric.c >>"$scratch/lines"; fi
compile "runtime and tools"
kernel_sources "$makefile" >"$scratch/sources"
for library in $(cut -d' ' -f1 "$scratch/sources" | sort -u); do
  sed -n "s|^$library \\([^ ]*\\) \\(.*\\)|$(echo $flags) \\2 \\1|p" "$scratch/sources" >"$scratch/lines"
  compile "kernels for $library"
done
looks_at "" kernels/*.c kernels/cpu/*.c >"$scratch/lines"
compile "kernels for all"
looks_at "" tests/gen/*.c tests/runtime/*.c tests/kernels/*.c tests/emulation/mock_device*.c >"$scratch/lines"
compile "tests"
if built libkernels_cuda; then
  looks_at "$cuda" kernels/cuda/*.c tests/gpu/*.c >"$scratch/lines"
  looks_at "$cuda -DPEN_EMULATED" tests/gpu/*.c >>"$scratch/lines"
  if built libnccl_calls; then looks_at "$cuda $(value NCCL_CPPFLAGS)" runtime/comm/nccl_api.c >>"$scratch/lines"; fi
  compile "what calls CUDA"
else
  skip "what calls CUDA" "configure found no CUDA toolkit"
fi
finish
