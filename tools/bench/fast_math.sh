#!/bin/sh
# fast_math.sh COMPILER SOURCES FOLDER: FOLDER/kernels.a, the CPU's kernels compiled so that sums may be reordered.
. "$2/tests/support/kernels.sh"
rm -rf "$3" && mkdir -p "$3" || exit
folder=$(cd "$3" && pwd)
compile_kernels "$(pwd)/$MAKEFILE" "$2" "$1" "-O3 -ffast-math -fno-finite-math-only" "$folder" && ar rcs "$3/kernels.a" "$folder"/*.o
