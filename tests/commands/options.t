#!/bin/sh
# options.t: the command line of penstock-gen: forms of an option, usage errors, help. PENSTOCK_GEN names another program.

program=${PENSTOCK_GEN:-${top_builddir:-.}/penstock-gen}
case $program in /*) ;; *) program=$PWD/$program ;; esac
if [ ! -x "$program" ]; then
  echo "1..0 # SKIP $program is not built"
  exit 0
fi
topology=$(cd "${top_srcdir:-.}" && pwd)/topologies/mlp_1.cfg
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
cd "$work" || exit 99
cp "$topology" t.cfg && cp -r "${topology%/*}/model" "${topology%/*}/optimizer" . || exit 99
tab='	'
count=0

ok() { # NAME COMMAND...
  name=$1
  shift
  count=$((count + 1))
  if "$@"; then
    echo "ok $count - $name"
  else
    echo "not ok $count - $name"
    head -3 err | sed 's/^/# /'
  fi
}

refused() { # MESSAGE ARGUMENT...
  message=$1
  shift
  "$program" "$@" >out 2>err
  [ $? -eq 64 ] && [ ! -s out ] && [ "$(cat err)" = "penstock-gen: $message" ]
}

while IFS=$tab read -r arguments message; do
  # shellcheck disable=SC2086 # words are meant to part here
  ok "penstock-gen $arguments" refused "$message" $arguments
done <<'END'
--check	TOPOLOGY.cfg is missing; see penstock-gen --help
--bogus t.cfg	--bogus: no such option; see penstock-gen --help
--chec t.cfg	--chec: no such option; see penstock-gen --help
-q t.cfg	-q: no such option; see penstock-gen --help
--print=nope t.cfg	--print nope: one of c, actions, memory, report, shapes, csv, csv-comms, text, svg, trace, promela
t.cfg --print	--print: needs KIND
t.cfg -o	-o: needs FILE
--output= t.cfg	--output: needs FILE, which may not be empty
--check=1 t.cfg	--check: takes no value
-s foo t.cfg	-s foo: needs PATH=VALUE, as in pipeline.ranks=2
-s =3 t.cfg	-s =3: needs PATH=VALUE, as in pipeline.ranks=2
--name=*/ t.cfg	--name */: needs a name of letters, digits, '_', '.' and '-'
--name a"b t.cfg	--name a"b: needs a name of letters, digits, '_', '.' and '-'
t.cfg u.cfg	u.cfg: one topology at a time
--depend=d t.cfg	--depend: needs --target, or --output
--arrows t.cfg	--arrows: only with --print=svg
--critical --print=text t.cfg	--critical: only with --print=svg
END

# Whatever form an option has, the same comes out.
"$program" --print=actions --set=pipeline.microbatches=3 t.cfg >wanted
same() { # ARGUMENT...
  "$program" "$@" >out 2>err && cmp -s out wanted
}
ok "the reference has one line" test "$(wc -l <wanted)" -eq 1
ok "long options with a value apart" same --print actions --set pipeline.microbatches=3 t.cfg
ok "short options" same -p actions -s pipeline.microbatches=3 t.cfg
ok "short options with a value attached" same -pactions -spipeline.microbatches=3 t.cfg
ok "options after the topology" same t.cfg -p actions -s pipeline.microbatches=3
ok "two dashes end the options" same -p actions -s pipeline.microbatches=3 -- t.cfg
into_file() { "$program" -p actions -s pipeline.microbatches=3 -o file t.cfg >out 2>err && [ ! -s out ] && cmp -s file wanted; }
ok "output into a file" into_file
into_link() { ln -s linked link && "$program" -o link t.cfg >out 2>err && [ -L link ] && [ -s linked ]; }
ok "output into what a link names" into_link
into_device() { # written through: by root it was replaced once
  "$program" -o full t.cfg >out 2>err
  [ $? -eq 74 ] && [ -c full ]
}
if mknod full c 1 7 2>err && (: >full) 2>err; then ok "a device is no file to replace" into_device; fi
keeps_topology() { # what it is made from is not what it is written to
  cp t.cfg same.cfg
  "$program" -o ./same.cfg same.cfg 2>err
  [ $? -eq 64 ] && grep -q "^penstock-gen: -o ./same.cfg: the same file as the topology$" err && cmp -s t.cfg same.cfg
}
ok "the topology is not written over" keeps_topology
keeps_inputs() {
  mkdir -p kept
  echo 'pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };' >kept/part.cfg
  { echo '@include "kept/part.cfg"'; grep -v '^pipeline' t.cfg; } >whole.cfg
  "$program" -p actions whole.cfg >kept/rows && "$program" -p csv whole.cfg >kept/order.csv && cp -r kept before || return 1
  only="-s pipeline.schedule=file -s pipeline.schedule_file=kept/order.csv"
  for refused in "part.cfg|kept/part.cfg, which the topology includes|" "rows|--actions|--actions=kept/rows" "order.csv|pipeline.schedule_file|$only"; do
    file=${refused%%|*} rest=${refused#*|}
    "$program" -o "./kept/$file" ${rest#*|} whole.cfg 2>err
    [ $? -eq 64 ] && grep -qx "penstock-gen: -o ./kept/$file: the same file as ${rest%%|*}" err || { cat err; return 1; }
    for other in --depend --times; do
      "$program" -o made "$other=./kept/$file" ${rest#*|} whole.cfg 2>err
      [ $? -eq 64 ] && grep -qx "penstock-gen: $other ./kept/$file: the same file as ${rest%%|*}" err && [ ! -e made ] || { cat err; return 1; }
    done
    "$program" --check --times="./kept/$file" ${rest#*|} whole.cfg 2>err
    [ $? -eq 64 ] || { cat err; return 1; }
  done
  diff -r before kept
}
ok "nor is what it includes, an order of actions or a schedule" keeps_inputs
marked() { # a byte order mark is passed over: in a topology and what it includes, an order, a schedule
  cp -r kept marked
  for file in part.cfg rows order.csv; do { printf '\357\273\277'; cat "kept/$file"; } >"marked/$file"; done
  { printf '\357\273\277'; sed 's,kept,marked,' whole.cfg; } >marked.cfg
  schedule="-s pipeline.schedule=file -s pipeline.schedule_file"
  for order in --actions=kept/rows "$schedule=kept/order.csv"; do
    marked_order=$(echo "$order" | sed 's,kept,marked,')
    # shellcheck disable=SC2086 # several words
    "$program" -p actions $order whole.cfg >plain && "$program" -p actions $marked_order marked.cfg 2>err | cmp - plain || { cat err; return 1; }
  done
}
ok "a byte order mark is passed over" marked
once() { # two outputs with one name
  "$program" -o made --depend ./made t.cfg 2>err
  [ $? -eq 64 ] && grep -qx "penstock-gen: -o made: the same file as --depend" err && [ ! -e made ]
}
ok "nor is one output over another" once
checks() { "$program" --check --output=none t.cfg >out 2>err && [ ! -s out ] && [ ! -e none ]; }
ok "--check writes nothing" checks

bounded() { # a name, a host, an argument of 100000 bytes, and what a terminal would act on
  long=$(printf '%0100000d' 0 | tr 0 k)
  { cat t.cfg; echo "$long = { a = 1; };"; } >long.cfg
  { cat t.cfg; echo "cluster = { $long = 1; };"; } >longer.cfg
  for topology in long.cfg longer.cfg "$long" "$(printf 'a\033[31m\nb.cfg')"; do
    "$program" --check "$topology" 2>err
    test $? -ne 0 && test "$(wc -l <err)" -eq 1 && test "$(wc -c <err)" -le 1500 && ! LC_ALL=C grep -q "$(printf '\033')" err || { cat err; return 1; }
  done
  "$program" --check longer.cfg 2>err
  test "$(wc -c <err)" -lt 300 || { cat err; return 1; }
}
ok "a message is one line of bounded length" bounded
hosts() {
  "$program" --check -s pipeline.ranks=2 -s 'cluster.hosts=["-oProxyCommand=x","b"]' t.cfg 2>err
  [ $? -eq 78 ] && grep -q "names or addresses of hosts, which do not begin with -" err
}
ok "a host is no option of ssh" hosts
helps() {
  "$program" --help >out 2>err && [ ! -s err ] || return 1
  for option in output print arrows critical set actions costs check depend target name times help version; do
    grep -q -- "--$option" out || return 1
  done
}
ok "--help names every option" helps
aligned() { # what an option means begins in one column, on a line of its own where the option is too long
  "$program" --help >out && ! grep -nE '^ .{22}[^ ].*[^ ]' out | grep -vE '^[0-9]+: +--[a-z-]+=[A-Z]+$' | sed 's/^/# /' | grep .
}
ok "--help keeps its column" aligned
version() { [ "$("$program" --version 2>err)" = "penstock-gen 0.1" ]; }
ok "--version" version

depends() {
  "$program" -o x.c --depend=x.d t.cfg >out 2>err || return 1
  printf 'x.c: t.cfg model/mlp.cfg optimizer/plain.cfg\n\nt.cfg:\n\nmodel/mlp.cfg:\n\noptimizer/plain.cfg:\n' | cmp -s - x.d
}
ok "--depend names every source, and outlives each" depends

timed() { # every pass once, with its time and memory
  "$program" --check --times=x.json t.cfg >out 2>err && [ ! -s out ] || return 1
  for pass in topology partition compose simulate lower layout verify; do
    [ "$(grep -c "\"name\": \"$pass\"" x.json)" -eq 1 ] || return 1
  done
  [ "$(grep -c '"seconds": [0-9]' x.json)" -gt 7 ] && [ "$(grep -c '"peak_kib": [1-9]' x.json)" -gt 7 ]
}
ok "--times names the passes" timed

names_input() { # a fragment's bytes follow those of the file that names it
  sum=$(cat t.cfg model/mlp.cfg optimizer/plain.cfg | sha256sum | cut -d' ' -f1)
  "$program" t.cfg 2>err | grep -qx " \*   input SHA-256 $sum"
}
ok "the tables name the input by what sha256sum says" names_input

echo "1..$count"
