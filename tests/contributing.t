#!/bin/sh
# contributing.t: the lists of files in CONTRIBUTING.md are those of the tree. Each path in back quotes is there, where NAME and * stand for any
# name; and of a kind of which there are some already, each source that names the one taken as example is in the list of its kind.
. "${top_srcdir:-.}/tests/support/lib.sh"

# lists FILE: the lists of a text, a line for each path: the heading's word, a tab, the path.
lists() {
  awk '/^## / { heading = /^## How to add / ? $6 : "-" }
    { n = split($0, part, "`")
      for (i = 2; i < n; i += 2)
        if (part[i] ~ /^[.A-Za-z0-9_*-]+(\/[.A-Za-z0-9_*-]+)*\/?$/ && (part[i] ~ /^[^.].*\/|^\.ci\// || part[i] ~ /^[A-Za-z]+\.(md|ac|am)$|^(NEWS|bootstrap)$/)) {
          print heading "\t" part[i]
        } }' "$1"
}
# absent LISTS: the paths of which the tree has none.
absent() {
  (cd "$top_srcdir" && while IFS='	' read -r heading path; do
    for file in $(echo "$path" | sed 's/NAME/*/g'); do test -e "$file" && break; done || echo "$heading $path"
  done) <"$1"
}
# naming OPTION EXTENDED_PATTERN PATH...: the sources at these paths that have the pattern, as a word (w), or in either case (i).
naming() {
  option=-rl${1}E pattern=$2
  shift 2
  (cd "$top_srcdir" && grep "$option" "$pattern" "$@" --include='*.[ch]' --include='*.cu' --include='*.cuh' --include='*.cc' --include='*.def' \
    --include='*.awk' --include='*.py' --include='*.sh' --include='*.t' --include=local.mk --include='*.m4' --include=configure.ac) | LC_ALL=C sort
}
# unlisted KIND NAME [LISTS]: those of the sources in standard input that are not in the list of their kind, of which NAME is one.
unlisted() {
  grep "^$1	" "${3:-$scratch/lists}" | cut -f2 | sed "s/NAME/$2/g" >"$scratch/patterns"
  while read -r file; do
    while read -r pattern; do
      # shellcheck disable=SC2254 # a pattern it is
      case $file in $pattern) continue 2 ;; esac
    done <"$scratch/patterns"
    echo "$file"
  done
}
sources='base gen kernels runtime m4 configure.ac'

lists "$top_srcdir/CONTRIBUTING.md" >"$scratch/lists"
is "each path of CONTRIBUTING.md is in the tree" "$(absent "$scratch/lists")" ""
for kind in op step family schedule setting transport group; do
  is "there is a list for a new $kind" "$(grep "^$kind	" "$scratch/lists" | sort -u | awk 'END { print (NR >= 4 ? "yes" : NR " paths") }')" yes
done
op=$(sed -n 's/^\([A-Z_]*\) is an example.*/\1/p' "$top_srcdir/CONTRIBUTING.md")
naming i "$op" base gen kernels runtime tools >"$scratch/product"
naming i "$op" tests >"$scratch/tests"
ok "at most 8 sources name an op: $(tr '\n' ' ' <"$scratch/product")" test -s "$scratch/product" -a "$(wc -l <"$scratch/product")" -le 8
ok "at most 3 tests name an op: $(tr '\n' ' ' <"$scratch/tests")" test -s "$scratch/tests" -a "$(wc -l <"$scratch/tests")" -le 3
is "each source that names the op $op is listed" "$(cat "$scratch/product" "$scratch/tests" | unlisted op "$op")" ""
is "each source that names the step SOFTPLUS is listed" "$(naming w 'SOFTPLUS|PEN_STEP_SOFTPLUS' base gen kernels runtime tools tests/*/ | unlisted step softplus)" ""
# shellcheck disable=SC2086 # a list
{
  is "each source that names the family gemma3_text is listed" "$(naming w 'gemma3|gemma3_text' $sources | unlisted family gemma3)" ""
  is "each source that names the schedule v_half is listed" "$(naming w v_half $sources | unlisted schedule v_half)" ""
  is "each source that names the setting minimum_ratio is listed" "$(naming w 'minimum_ratio|optimizer_minimum_ratio' $sources | unlisted setting minimum_ratio)" ""
  is "each source that names shard_ranks, the size of a group, is listed" "$(naming w 'shard_ranks|data_parallel_shard_ranks' $sources | unlisted group shard)" ""
  is "each source that names the transport ofi is listed" "$(naming w 'ofi|OFI|PEN_OFI|PEN_TRANSPORT_OFI' $sources | unlisted transport ofi)" ""
}

# ---- a text with faults ----
cat >"$scratch/text.md" <<'END'
## How to add an op
`kernels/ops.def`, `kernels/cpu/NAME.c`, `kernels/gone.c`, `pen_op_NAME()`, `gone/*.c`, `gone.md`, `-s a/b c`
## Other
`gen/nowhere/` and `tests/layers.t`
END
lists "$scratch/text.md" >"$scratch/other"
is "paths that the tree does not have are found" "$(absent "$scratch/other")" "op kernels/gone.c
op gone/*.c
op gone.md
- gen/nowhere/"
is "a source that is not listed is found" "$(unlisted op rope "$scratch/other" <<'END'
kernels/cpu/rope.c
kernels/cpu/open.c
kernels/ops.def
gen/model/fuse.c
END
)" "kernels/cpu/open.c
gen/model/fuse.c"
finish
