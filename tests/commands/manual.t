#!/bin/sh
# manual.t: the manuals are clean mdoc, every option of a program's --help is in its manual, and every setting in penstock.cfg.5 and in the tables
# of docs/contracts.md.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v mandoc >/dev/null || skip_all "mandoc is not here"

# The manuals of a tarball are ready-made and lie in its source folder.
manual() { if [ -f "$top_builddir/man/$1" ]; then echo "$top_builddir/man/$1"; else echo "$top_srcdir/man/$1"; fi; }
ascii() { mandoc -Tascii -O width=200 "$(manual "$1")" | sed "s/.$(printf '\b')//g"; } # bold is a letter over itself

for page in penstock-gen.1 penstock-build.1 penstock.1 penstock-tokens.1 penstock-convert.1 penstock-plan.1 penstock-report.1 penstock-launch.1 penstock-log.1 penstock-chat.1 penstock-import.1 penstock.cfg.5 penstock-schedules.7 penstock-families.7; do
  # The pages refer to each other, which the linter cannot know before they are installed.
  is "$page is clean" "$(mandoc -Tlint "$(manual "$page")" | grep -v 'referenced manual not found\|outdated mandoc.db')" ""
done

options_of() { "$@" --help 2>&1 | grep -oE -- '--[a-z][a-z-]*' | sort -u; }
covers() { # PAGE COMMAND...
  page=$1
  shift
  text=$(ascii "$page")
  for option in $(options_of "$@"); do
    case "$text" in
      *"$option"*) ;;
      *) echo "# $page lacks $option"; return 1 ;;
    esac
  done
}
ok "penstock-gen.1 has every option" covers penstock-gen.1 "$gen"
synopsis_covers() { # every option is in penstock-gen.1's SYNOPSIS, by its short form if it has one
  ascii penstock-gen.1 |
    sed -n '/^SYNOPSIS/,/^DESCRIPTION/p' | grep -oE -- '-[a-zA-Z-]+' | sort -u >"$scratch/synopsis"
  "$gen" --help | sed -nE 's/^  (-[a-zA-Z]), --.*/\1/p; s/^      (--[a-z-]+).*/\1/p' | sort -u >"$scratch/options"
  [ "$(wc -l <"$scratch/options")" -gt 12 ] && ! comm -13 "$scratch/synopsis" "$scratch/options" | sed 's/^/# SYNOPSIS lacks /' | grep .
}
ok "penstock-gen.1 begins with every option" synopsis_covers
environment() { # of the ENVIRONMENT section: the variables
  ascii penstock-gen.1 | sed -n '/^ENVIRONMENT/,/^EXIT/p' | grep -qE '^   [A-Z][a-z]' && return 1
  return 0
}
ok "penstock-gen.1 keeps other matter out of ENVIRONMENT" environment
names_kept() { ascii penstock.cfg.5 | grep -E '(Zb_h|Torch\.)' && return 1; return 0; }
ok "a sentence that begins with a name keeps it as it is" names_kept
ok "penstock-tokens.1 has every option" covers penstock-tokens.1 "$tokens"
ok "penstock-convert.1 has every option" covers penstock-convert.1 "$top_builddir/penstock-convert"
ok "penstock-plan.1 has every option" covers penstock-plan.1 "$top_builddir/penstock-plan"
for name in report log chat import; do
  if test -x "$top_builddir/penstock-$name"; then
    ok "penstock-$name.1 has every option" covers penstock-$name.1 "$top_builddir/penstock-$name"
  fi
done
covers_schedules() {
  text=$(ascii penstock-schedules.7)
  for name in $("$gen" --list-schedules | sed -n 's/^\([a-z0-9_]*\)$/\1/p'); do
    case "$text" in
      *"   $name
"*) ;;
      *) echo "# penstock-schedules.7 lacks $name"; return 1 ;;
    esac
  done
}
ok "penstock-schedules.7 has every schedule" covers_schedules
settings() { sed -n 's/^PEN_SETTING(\([a-z_]*\), *\([a-z0-9_]*\),.*/\1 \2/p' "$top_srcdir/gen/topology/settings.def"; }
has_settings() { # COMMAND...: it prints the text of a group, in which each setting of the group is a word
  settings | while read -r group name; do
    "$@" "$group" | grep -qw -- "$name" || echo "# no $group.$name"
  done >"$scratch/absent"
  cat "$scratch/absent"
  test "$(settings | wc -l)" -gt 100 && test ! -s "$scratch/absent"
}
of_manual() { awk -v group="   $(echo "$1" | sed 's/^shapes$/batch/')" '/^   [a-z_]+$/ { inside = $0 == group } inside' "$scratch/settings"; }
of_contracts() { grep "^| \`$1\` |" "$top_srcdir/docs/contracts.md"; }
ascii penstock.cfg.5 >"$scratch/settings"
ok "penstock.cfg.5 has every setting" has_settings of_manual
ok "docs/contracts.md has every setting" has_settings of_contracts
build mlp "$topologies/mlp_1.cfg"
for command in train eval score generate measure init info; do ok "penstock.1 has every option of $command" covers penstock.1 "$scratch/mlp" $command; done
version=$("$gen" --version | sed 's/.* //')
for program in "$gen" "$tokens" "$top_builddir/penstock-convert" "$top_builddir/penstock-plan" "$top_builddir/penstock-report" "$top_builddir/penstock-log" "$top_builddir/penstock-chat" "$top_builddir/penstock-import" \
  "$top_srcdir/tools/penstock-launch"; do
  test -x "$program" || continue
  name=${program##*/}
  is "$name has --version, -V and -h" "$("$program" --version | sed 's/.* //') $("$program" -V | sed 's/.* //') $("$program" -h | sed -n '1s/ .*//p')" \
    "$version $version usage:"
done
is "tokens_hf.py has the same version" "$(sed -n 's/^VERSION = "\(.*\)"/\1/p' "$top_srcdir/tools/tokens_hf.py")" "$version"
finish
