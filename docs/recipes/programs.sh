# programs.sh: what the recipes share: where the programs are, and how a deployment is built.
#
# PENSTOCK is the folder of the programs: a build folder, or bin of what make install installed. By default it is the current folder, if
# penstock-gen is there, else its folder in PATH. SETTINGS is a list of PATH=VALUE that override the topology. TEXT is a list of text files
# [docs/*.md]; no name in it has a blank.
if test -z "${PENSTOCK-}"; then
  PENSTOCK=.
  test -x ./penstock-gen || PENSTOCK=$(dirname "$(command -v penstock-gen)")
fi
if ! test -x "$PENSTOCK/penstock-gen"; then
  echo "$0: $PENSTOCK: no penstock-gen there: set PENSTOCK to the folder of the programs" >&2
  exit 66
fi
PENSTOCK=$(cd "$PENSTOCK" && pwd)
PATH=$PENSTOCK:$PATH
recipes=$(cd "$(dirname "$0")/.." && pwd)
# absolute FILE: its path from the root, since the recipes change the folder.
absolute() {
  if ! test -e "$1"; then
    echo "$0: $1: no such file" >&2
    exit 66
  fi
  readlink -f "$1"
}
text=
for file in ${TEXT:-"$recipes"/../*.md}; do text="$text $(absolute "$file")"; done
settings=
for setting in ${SETTINGS-}; do settings="$settings -s $setting"; done

# build NAME TOPOLOGY [OPTION...]: makes penstock-NAME in the current folder.
build() {
  build_name=$1
  shift
  penstock-build --name="$build_name" "$@" $settings
}

# optional PROGRAM ARGUMENT...: runs it, if it is there: those in Python are installed where there is Python.
optional() {
  if command -v "$1" >/dev/null; then "$@"; else echo "$1 is not there: left out" >&2; fi
}
