#!/bin/sh
# build.t: make TOPOLOGY=... rebuilds exactly what a change touches; a build folder elsewhere, an installation and odd names work.
. "${top_srcdir:-.}/tests/support/lib.sh"

# A build folder of our own on top of the one under test: its Makefile with the same configuration, its archives linked in.
work=$scratch/build
mkdir "$work"
ln -s "$gen" "$work/penstock-gen"
for file in penstock-tokens libruntime.a $KERNEL_ARCHIVES libkernels_cuda.a libnccl_calls.a $OFI_ARCHIVES; do
  test ! -f "$top_builddir/$file" || ln -s "$top_builddir/$file" "$work/$file"
done
cp "$top_builddir/Makefile" "$top_builddir/config.status" "$work"
# Only the part under test runs there: its prerequisites are up to date.
plan_make() { # NAME ARGUMENT...
  target=penstock-$1
  shift
  (cd "$work" && unset MAKEFLAGS MFLAGS MAKELEVEL &&
    make $(printf -- '-o %s ' penstock-gen penstock-tokens libruntime.a $KERNEL_ARCHIVES libkernels_cuda.a libnccl_calls.a $OFI_ARCHIVES Makefile config.status) \
      srcdir="$top_srcdir" top_srcdir="$top_srcdir" "$@" "$target" >"$scratch/make.log" 2>&1) ||
    { sed 's/^/# /' "$scratch/make.log" | tail -n 20; return 1; }
}
inode() { ls -i "$work/$1" | awk '{ print $1 }'; }

mkdir "$scratch/top"
cat >"$scratch/top/model.cfg" <<'END'
model = { family = "mlp"; layers = 2; hidden = 16; sequence = 4; };
END
cat >"$scratch/top/mine.cfg" <<'END'
@include "model.cfg"
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 2; };
END

ok "a path that ends in .cfg is built" plan_make mine TOPOLOGY="$scratch/top/mine.cfg"
ok "and runs" "$work/penstock-mine" train --quiet
. "$top_srcdir/tests/support/hardened.sh"
if test -z "$(no_hardening)"; then ok "it is hardened" is_hardened "$work/penstock-mine"; else skip "it is hardened" "$(no_hardening)"; fi
first=$(inode plan/mine.c)
ok "again" plan_make mine TOPOLOGY="$scratch/top/mine.cfg"
is "nothing is rebuilt when nothing changed" "$(inode plan/mine.c)" "$first"
sleep 0.01
touch "$scratch/top/model.cfg"
ok "a touched fragment" plan_make mine TOPOLOGY="$scratch/top/mine.cfg"
ok "rebuilds the plan" test "$(inode plan/mine.c)" != "$first"
second=$(inode plan/mine.c)
ok "SETTINGS" plan_make mine TOPOLOGY="$scratch/top/mine.cfg" SETTINGS='pipeline.ranks=1 pipeline.microbatches=4'
ok "change the plan" test "$(inode plan/mine.c)" != "$second"
matches "as they say" "$("$work/penstock-mine" info --json | tr -d ' \n')" '*"microbatches":4*'
ok "NAME renames" plan_make other TOPOLOGY="$scratch/top/mine.cfg" NAME=other
ok "the renamed binary runs" "$work/penstock-other" train --quiet
ok "a name in topologies/ is built" plan_make mlp_1 TOPOLOGY=mlp_1

# The file says by which command it was written; what it is for comes first.
(cd "$scratch/top" && "$gen" -o "$scratch/first.c" --name=other --blocks -s 'pipeline.schedule="gpipe"' -s model.layers=4 mine.cfg)
command=$(sed -n '3s/^ \*   penstock-gen //p' "$scratch/first.c")
(cd "$scratch/top" && eval "\"\$gen\" -o \"\$scratch/again.c\" $command")
ok "the command in a plan writes the same bytes" cmp "$scratch/first.c" "$scratch/again.c"
is "the plans that measure follow the deployment's" "$(grep -o -e '^const struct pen_plan pen_plan' -e '==== measured 1 ====' "$scratch/first.c" | tr '\n' ' ')" \
  "const struct pen_plan pen_plan ==== measured 1 ==== "

# make parts words at blanks, also in a path.
mkdir "$scratch/top/two words"
cp "$scratch/top/model.cfg" "$scratch/top/mine.cfg" "$scratch/top/two words"
ok "a path with a blank is built with a NAME" plan_make spaced TOPOLOGY="$scratch/top/two words/mine.cfg" NAME=spaced
ok "and runs" "$work/penstock-spaced" train --quiet
plan_make mine TOPOLOGY="$scratch/top/two words/mine.cfg" >"$scratch/blank"
is "and without one it is not" $? 1
matches "but said what to do" "$(cat "$scratch/blank")" "*a path with a blank: say NAME=..., without one, as well*"

# install-exec-local and uninstall-local are what install and uninstall do for a deployment's binary.
installation() {
  (cd "$work" && unset MAKEFLAGS MFLAGS MAKELEVEL && make -o all-local -o Makefile -o config.status "$1-local" TOPOLOGY=mlp_1 \
    DESTDIR="$scratch/dest" prefix=/usr srcdir="$top_srcdir" top_srcdir="$top_srcdir" >"$scratch/make.log" 2>&1)
}
ok "the binary is installed" installation install-exec
ok "and runs" sh -c "$scratch/dest/usr/bin/penstock-mlp_1 info >/dev/null"
ok "the binary is uninstalled" installation uninstall
ok "and gone" test ! -e "$scratch/dest/usr/bin/penstock-mlp_1"

# A fragment that vanishes: what depends on it is built again, and make does not stop at the missing file.
cat >"$scratch/top/mine.cfg" <<'END'
model = { family = "mlp"; layers = 2; hidden = 16; sequence = 4; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-3; steps = 2; };
END
rm "$scratch/top/model.cfg"
ok "a vanished fragment breaks nothing" plan_make other TOPOLOGY="$scratch/top/mine.cfg" NAME=other

# The same input gives the same bytes, from wherever it is read.
"$gen" "$scratch/top/mine.cfg" >"$scratch/a.c"
mkdir "$scratch/elsewhere"
cp "$scratch/top/mine.cfg" "$scratch/elsewhere"
(cd "$scratch/elsewhere" && "$gen" mine.cfg) >"$scratch/b.c"
ok "the same input gives the same bytes from another folder" cmp "$scratch/a.c" "$scratch/b.c"
{ echo "# a comment"; cat "$scratch/top/mine.cfg"; } >"$scratch/elsewhere/mine.cfg"
digest() { sed -n 's/^  \.digest = //p' "$1"; }
"$gen" "$scratch/elsewhere/mine.cfg" >"$scratch/c.c"
is "a comment does not enter the digest" "$(digest "$scratch/c.c")" "$(digest "$scratch/a.c")"
"$gen" -s optimizer.learning_rate=2e-3 "$scratch/elsewhere/mine.cfg" >"$scratch/d.c"
ok "a setting does" test "$(digest "$scratch/d.c")" != "$(digest "$scratch/a.c")"
ok "a plan names neither folder nor date" sh -c "! grep -q '$scratch' '$scratch/a.c'"

# What --with-cuda makes of a topology whose device is "auto": by the Makefile that configure writes then, with the generator that it makes.
if grep -q '^S\["CUDA_TRUE"\]=""' "$top_builddir/config.status"; then
  sed 's/^\(S\["CUDA_WANTED_TRUE"\]\)=.*/\1=""/; s/^\(S\["CUDA_WANTED_FALSE"\]\)=.*/\1="#"/; s/^srcdir=.*/srcdir=./
    s/^\(D\["PEN_CONFIGURED_DEVICE"\]\)=.*/\1=" PEN_DEVICE_CUDA"/' \
    "$top_builddir/config.status" >"$work/config.status"
  rm "$work/penstock-gen"
  mkdir -p "$work/gen"
  ln -s "$top_srcdir/gen/main.c" "$work/gen"
  ln -s "$top_srcdir/Makefile.in" "$top_srcdir/config.h.in" "$top_builddir/libgen.a" "$work"
  in_work() {
    (cd "$work" && unset MAKEFLAGS MFLAGS MAKELEVEL && "$@") >"$scratch/make.log" 2>&1 || { sed 's/^/# /' "$scratch/make.log"; return 1; }
  }
  ok "configured with CUDA" in_work sh ./config.status Makefile config.h
  ok "the generator is made" in_work make -o Makefile -o config.status -o libgen.a srcdir="$top_srcdir" top_srcdir="$top_srcdir" penstock-gen
  # for_device NAME DEVICE TRANSPORT: what a topology's binary says.
  for_device() {
    ok "$1 is built" plan_make "$1" TOPOLOGY="$1"
    matches "for $2" "$("$work/penstock-$1" info)" "*device        $2, transport $3*"
  }
  for_device pp8_zbv cuda ipc
  for_device mlp_1 cpu shm
else
  skip "what --with-cuda makes of a topology" "no CUDA toolkit to link with"
fi

# make demo takes minutes, so its last line alone is looked at: the script, and the folder that it works in.
demo_line=$(cd "$top_builddir" && unset MAKEFLAGS MFLAGS MAKELEVEL && make -n demo 2>/dev/null | grep 'tools/demo\.sh')
eval "set -- $demo_line"
is "make demo gives its script one folder" "$#" 2
ok "the script is there" test -x "$(cd "$top_builddir" && realpath "${1:-none}")"
is "the folder is the build's" "$(realpath "${2:-none}")" "$(realpath "$top_builddir")"
finish
