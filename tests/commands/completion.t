#!/bin/sh
# completion.t: bash completes the options of every program, as --help lists them, commands, choices, settings and files.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v bash >/dev/null || skip_all "no bash here"
case $top_builddir in /*) ;; *) top_builddir=$PWD/$top_builddir ;; esac
cat >"$scratch/complete.sh" <<'END'
compopt() { :; } # without a terminal there is no completion whose options it could set
. "$top_builddir/penstock-gen.bash"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_penstock
printf '%s\n' "${COMPREPLY[@]}" | sort | tr '\n' ' '
END
complete() { top_builddir=$top_builddir bash "$scratch/complete.sh" "$@"; } # WORD...: what the last one may become
ok "a deployment" build two "$topologies/mlp_4.cfg"
mkdir "$scratch/here" "$scratch/here/folder"
cd "$scratch/here" || exit 99
touch one.cfg other.txt

# ---- every option ----
listed() { "$@" --help 2>&1 | sed -n 's/^  \(-[a-zA-Z], \|    \)\(--[a-z-]*\).*/\2/p' | sort -u | tr '\n' ' '; }
long() { complete "$@" | tr ' ' '\n' | grep '^--' | tr '\n' ' '; }
for program in gen plan tokens convert; do
  is "penstock-$program" "$(long penstock-$program --)" "$(listed "$top_builddir/penstock-$program")"
done
for program in report log chat; do
  if test -x "$top_builddir/penstock-$program"; then
    is "penstock-$program" "$(long penstock-$program --)" "$("$top_builddir/penstock-$program" --help | sed -n 's/^  \(-[a-zA-Z][^-]*, \)\{0,1\}\(--[a-z-]*\).*/\2/p' | sort -u | tr '\n' ' ')"
  fi
done
in_usage() { "$@" --help | sed -n '1s/^usage: //p' | tr -c 'a-z-' '\n' | grep '^--' | sort -u | tr '\n' ' '; }
for program in "$top_builddir/penstock-build" "$top_srcdir/tools/penstock-launch"; do
  name=$(basename "$program")
  is "$name" "$(long "$name" -- | sed 's/--help //; s/--set //; s/--version //')" "$(in_usage "$program")"
done
is "the commands of a deployment" "$(complete ./penstock-two '')" "--help --version eval generate info init measure score train "
for command in train eval init info score generate measure; do
  is "options of $command" "$(long ./penstock-two $command -- | sed 's/--help //')" "$(listed ../two $command)"
done

# ---- values ----
is "the beginning of an option" "$(complete penstock-two train --sa)" "--sample-every --samples --save-every "
is "a choice" "$(complete penstock-gen --print = cs)" "csv csv-comms "
is "all of them" "$(complete penstock-plan -p '')" "json svg table "
is "a setting" "$(complete penstock-gen -s pipeline.sc)" "pipeline.schedule= pipeline.schedule_file= "
is "a topology" "$(complete penstock-gen o)" "one.cfg "
is "any file, and folders" "$(complete penstock-tokens -o '')" "folder one.cfg other.txt "
is "a folder" "$(complete penstock-two eval --checkpoint = '')" "folder "
is "nothing for a number" "$(complete penstock-two train --steps '')" " "

# ---- deployments of any name ----
cat >any.sh <<'END'
former() { echo "former $1"; }
builtin complete -D -F former
. "$top_builddir/penstock-gen.bash"
. "$top_builddir/penstock-gen.bash"
_penstock_any ./penstock-mine
echo "$? $(complete -p penstock-mine)"
_penstock_any other
END
is "are known once they are completed; others are completed as before" "$(top_builddir=$top_builddir bash any.sh)" "124 complete -F _penstock penstock-mine
former other"

# ---- installed ----
(cd "$top_builddir" && unset MAKEFLAGS MFLAGS MAKELEVEL && make install-data DESTDIR="$scratch/root" prefix=/usr datarootdir=/usr/share) >"$scratch/log" 2>&1
is "it is installed for each program" "$(ls "$scratch/root/usr/share/bash-completion/completions" | tr '\n' ' ')" \
  "penstock-build penstock-chat penstock-convert penstock-gen penstock-import penstock-launch penstock-log penstock-plan penstock-report penstock-tokens "
ok "as one file" cmp "$scratch/root/usr/share/bash-completion/completions/penstock-log" "$top_builddir/penstock-gen.bash"
finish
