#!/bin/sh
# bootstrap.t: ./bootstrap installs nothing by itself and names the packages that are missing; --install installs them.
. "${top_srcdir:-.}/tests/support/lib.sh"

# Each command below is a shell script that records how it was called; no real package manager is reached.
path=$scratch/bin
mkdir "$path" "$scratch/tree"
cp "$top_srcdir/bootstrap" "$scratch/tree"
for tool in sh dirname grep id env cat; do ln -s "$(command -v $tool)" "$path/$tool"; done
fake_command() { # NAME SCRIPT
  printf '#!/bin/sh\n%s\n' "$2" >"$path/$1"
  chmod +x "$path/$1"
}
run_bootstrap() {
  rm -f "$scratch/calls"
  (cd "$scratch/tree" && PATH=$path ./bootstrap "$@") >"$scratch/output" 2>&1
}
calls() { cat "$scratch/calls" 2>/dev/null; }

# use_system TOOL INSTALLED MANAGER: a system whose package query succeeds for packages that match the pattern.
use_system() {
  rm -f "$path/dpkg-query" "$path/rpm" "$path/dnf" "$path/apt-get"
  for tool in autoreconf sudo "$3"; do fake_command "$tool" "echo $tool \"\$@\" >>$scratch/calls; test $tool != sudo || \"\$@\""; done
  fake_command "$1" "for name; do :; done; case \$name in $2) echo 'install ok installed' ;; *) exit 1 ;; esac"
}

for system in Debian Fedora; do
  if test $system = Debian; then
    query=dpkg-query manager=apt-get absent='nettle-dev' installed='[!n]*|nothing'
  else
    query=rpm manager=dnf absent='nettle-devel' installed='[!n]*|nothing'
  fi
  use_system $query '*' $manager
  run_bootstrap
  is "$system: with all packages present bootstrap exits with 0" $? 0
  is "$system: it runs autoreconf and nothing else" "$(calls)" "autoreconf --install --force"
  use_system $query "$installed" $manager
  run_bootstrap
  is "$system: with a package missing bootstrap exits with 1" $? 1
  matches "$system: it names the missing package alone" "$(cat "$scratch/output")" "*missing $system packages: $absent
*"
  is "$system: it runs no command" "$(calls)" ""
  run_bootstrap --install
  is "$system: --install exits with 0" $? 0
  matches "$system: --install installs the missing package, then runs autoreconf" "$(calls)" "*$manager install * $absent
autoreconf --install --force"
  fake_command $manager 'exit 1'
  run_bootstrap --install
  is "$system: when the installation fails bootstrap exits with 1" $? 1
done
# nettle-dev is a package of the build, munge one of the tests.
use_system dpkg-query '[!m]*|ma*' apt-get
run_bootstrap
is "without --tests a package of the tests may be missing" $? 0
run_bootstrap --tests
is "with --tests it may not" $? 1
matches "and is named" "$(cat "$scratch/output")" "*missing Debian packages: mpich munge*"
run_bootstrap --install --tests
matches "--install --tests installs it" "$(calls)" "*apt-get install * mpich munge
autoreconf*"
rm "$path/apt-get"
run_bootstrap
is "without apt-get and dnf bootstrap exits with 1" $? 1
matches "and names the packages of both systems" "$(cat "$scratch/output")" "*Debian packages: gcc *Fedora packages: gcc *"
run_bootstrap --instal
is "an unknown option exits with 64" $? 64
finish
