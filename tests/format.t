#!/bin/sh
# format.t: every C, C++ and CUDA source is formatted as .clang-format says, by clang-format 14.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v clang-format-14 >/dev/null || skip_all "clang-format-14 is not installed"

sources() {
  find base gen runtime kernels tools tests -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cc'
}

# check_format LANGUAGE PATTERN: the sources whose names match the extended pattern.
check_format() {
  (cd "$top_srcdir" && sources | grep -E "$2" | sort) >"$scratch/files"
  (cd "$top_srcdir" && xargs clang-format-14 --dry-run --style=file <"$scratch/files") >"$scratch/out" 2>&1
  grep 'warning: code should be clang-formatted' "$scratch/out" | cut -d : -f 1,2 | sort -u | head -n 20 | sed 's/^/# /'
  ok "$1: $(wc -l <"$scratch/files") files" test -s "$scratch/files" -a ! -s "$scratch/out"
}

printf 'int  main(void){return 0;}\n' >"$scratch/bad.c"
ok "a badly formatted file is found" grep -q warning <<END
$(clang-format-14 --dry-run --style="file:$top_srcdir/.clang-format" "$scratch/bad.c" 2>&1)
END
check_format "C" '\.[ch]$'
check_format "C++ and CUDA" '\.(cu|cuh|cc)$'
finish
