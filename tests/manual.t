#!/bin/sh
# manual.t: the manuals are clean mdoc, and every option that a program's --help knows stands in its manual.
. "${top_srcdir:-.}/tests/lib.sh"
command -v mandoc >/dev/null || skip_all "mandoc is not here"

for page in penstock-gen.1 penstock.1 penstock-tokens.1 penstock.cfg.5 penstock-schedules.7 penstock-families.7; do
  # The pages refer to each other, which the linter cannot know before they are installed.
  is "$page is clean" "$(mandoc -Tlint "$top_builddir/man/$page" | grep -v 'referenced manual not found')" ""
done

options_of() { "$@" --help 2>&1 | grep -oE -- '--[a-z][a-z-]*' | sort -u; }
covers() { # PAGE COMMAND...
  page=$1
  shift
  text=$(mandoc -Tascii "$top_builddir/man/$page" | sed "s/.$(printf '\b')//g") # bold is a letter over itself
  for option in $(options_of "$@"); do
    case "$text" in
      *"$option"*) ;;
      *) echo "# $page lacks $option"; return 1 ;;
    esac
  done
}
ok "penstock-gen.1 has every option" covers penstock-gen.1 "$gen"
ok "penstock-tokens.1 has every option" covers penstock-tokens.1 "$tokens"
covers_schedules() {
  text=$(mandoc -Tascii "$top_builddir/man/penstock-schedules.7" | sed "s/.$(printf '\b')//g")
  for name in $("$gen" --list-schedules | sed -n 's/^\([a-z0-9_]*\)$/\1/p'); do
    case "$text" in
      *"   $name
"*) ;;
      *) echo "# penstock-schedules.7 lacks $name"; return 1 ;;
    esac
  done
}
ok "penstock-schedules.7 has every schedule" covers_schedules
build mlp "$topologies/mlp_1.cfg"
for command in train eval init info; do ok "penstock.1 has every option of $command" covers penstock.1 "$scratch/mlp" $command; done
finish
