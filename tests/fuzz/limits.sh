#!/bin/sh
# limits.sh [ARGUMENT...]: builds penstock-gen and penstock-plan with AddressSanitizer and UndefinedBehaviorSanitizer, and runs limits.py with
# each limit of a setting and 1,500 random combinations.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A copy of the sources alone: a source folder that was built in cannot be built from elsewhere.
mkdir "$work/source" "$work/build"
(cd "$source" && tar cf - --exclude='*.o' --exclude='*.a' --exclude=.deps --exclude=.dirstamp configure configure.ac config.h.in aclocal.m4 \
  Makefile.am Makefile.in build-aux m4 base gen runtime kernels tools tests topologies man docs) | (cd "$work/source" && tar xf -)
(cd "$work/build" && unset MAKEFLAGS MFLAGS MAKELEVEL
 "$work/source/configure" -q --without-cuda CC="${CC:-cc}" CFLAGS='-g1 -O1 -fsanitize=address,undefined -fno-sanitize-recover=all'
 make -s -j2 penstock-gen penstock-plan)
ASAN_OPTIONS=detect_leaks=0 python3 "$source/tests/fuzz/limits.py" --random 1500 --plans 60 --jobs 2 "$@" \
  --plan "$work/build/penstock-plan" "$work/build/penstock-gen" "$source"
