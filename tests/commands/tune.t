#!/bin/sh
# tune.t: make tune: which candidates it builds, what it predicts and measures, and which it keeps. Binaries are linked by lib.sh instead of make.
. "${top_srcdir:-.}/tests/support/lib.sh"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || skip_all "no python3 here"
cd "$scratch" || exit 99

cat >cluster.cfg <<'END'
plan = { ranks = 2; sequences = 4; memory_mib = 64; microbatch = [1, 2]; schedules = ["1f1b", "zb_h1"]; };
model = { family = "llama"; layers = 2; hidden = 32; heads = 4; ffn = 96; vocab = 256; sequence = 32; };
optimizer = { learning_rate = 1e-3; steps = 100; };
cluster = { device = "cpu"; };
END
ln -s "$top_builddir/penstock-plan" penstock-plan
cat >make.sh <<'END'
#!/bin/sh
. "$top_srcdir/tests/support/lib.sh"
for word; do
  case $word in
    TOPOLOGY=*) topology=${word#*=} ;;
    NAME=*) name=${word#*=} ;;
  esac
done
echo "$name" >>made
build "$name" "$topology" --blocks && cp "$scratch/$name" "penstock-$name"
END
chmod +x make.sh
export top_srcdir top_builddir
tune() { "$python" -B "$top_srcdir/tools/bench/tune.py" --turns 2 --steps 3 --seconds 1 ./make.sh "$@"; }

tune cluster.cfg >out 2>err
is "it ends" "$?" 0
is "it builds the binary that measures and three candidates" "$(tr '\n' ' ' <made)" "cluster_measure cluster_1 cluster_2 cluster_3 "
for n in 1 2 3; do
  sed -n 's/^  \(replicas\|stages_per_rank\|microbatch\|schedule\) = \(.*\);/\1=\2/p' tune/cluster_$n.cfg | sort | tr '\n' ' '
  echo
done >layouts
is "no two have the same replicas, stages, microbatch and schedule" "$(sort -u layouts | wc -l)" 3
./penstock-plan --costs=tune/cluster-costs.json --top=3 -p json cluster.cfg >found 2>err
is "it predicts the steps of penstock-plan" "$(awk '/^cluster_/ { print $2 }' out | tr '\n' ' ')" \
  "$(sed -n 's/^ *"step": \(.*\),/\1/p' found | awk '{ printf "%.1f ", $1 }')"
is "each was measured" "$(awk '/^cluster_/ && $3 > 0 { count++ } END { print count }' out)" 3
kept=$(awk '/<- kept$/ { print $1 }' out)
is "one is kept" "$(echo "$kept" | wc -w)" 1
is "it is the fastest" "$(awk -v kept="$kept" '$1 == kept { print $3 }' out)" "$(awk '/^cluster_/ { print $3 }' out | sort -g | head -n 1)"
ok "as cluster-tuned.cfg" cmp "tune/$kept.cfg" cluster-tuned.cfg
ok "which has a plan" "$gen" --check cluster-tuned.cfg
is "it says how to build it" "$(tail -n 1 out)" "cluster-tuned.cfg: make TOPOLOGY=cluster-tuned.cfg"

sed 's/memory_mib = 64/memory_mib = 1/; s/vocab = 256/vocab = 65536/' cluster.cfg >small.cfg
rm -rf tune
tune small.cfg >out 2>err
matches "what does not fit ends it" "$? $(tail -n 1 err)" "78 small.cfg: plan.memory_mib = 1: at least *"
finish
