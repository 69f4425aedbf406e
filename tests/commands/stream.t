#!/bin/sh
# stream.t: generate --stream continues lines of token ids as they come, each as --prompt would, on any ranks, in one run that waits for the next.
. "${top_srcdir:-.}/tests/support/lib.sh"
PEN_PRODUCTS=own # sums do not depend on the number of rows, so that bits are equal
export PEN_PRODUCTS

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 4; hidden = 16; heads = 4; ffn = 32; vocab = 300; sequence = 64; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 1; };
pipeline = { ranks = 2; microbatches = 2; schedule = "1f1b"; };
generate = { prompts = 3; };
cluster = { device = "cpu"; };
END
cd "$scratch" || exit 99
ok "two ranks" build two model.cfg
ok "four ranks without a cache" build plain model.cfg -s pipeline.ranks=4 -s generate.prompts=0
ok "replicas that share out their weights" build replicas model.cfg -s pipeline.ranks=1 -s data_parallel.replicas=2 -s data_parallel.shard=weights
ok "one tensor rank of two splits" build split model.cfg -s pipeline.ranks=1 -s tensor_parallel.splits=2
ok "two tensor ranks" build tensor model.cfg -s pipeline.ranks=1 -s tensor_parallel.splits=2 -s tensor_parallel.ranks=2
ok "a vocabulary of bytes" build bytes model.cfg -s model.vocab=256
ids() { awk -v n="$1" 'BEGIN { s = 5; for (i = 0; i < n; i++) { s = s * 16807 % 2147483647; printf "%d ", 1 + s % 255 } }'; }
{
  printf ' 7  12\t8 \r\n\n'
  ids 63
  printf '\n \n9\n'
  ids 150 # longer than the sequence, and without an end
} >lines
options="--tokens 12 --temperature 1.1 --top-p 0.9 --repetition-penalty 1.1 --seed 4 --quiet"
wanted() { # NAME: by a run for each line
  while read -r prompt || test -n "$prompt"; do
    prompt=$(echo $prompt | tr -d '\r')
    test -z "$prompt" || "./$1" generate --init two.safetensors --prompt "$prompt" $options | cut -d ' ' -f "$(($(echo $prompt | wc -w) + 1))-"
  done <lines
}
streamed() { # NAME OPTION...
  streamed_name=$1
  shift
  "./$streamed_name" generate --init two.safetensors --stream $options "$@"
}
./two init --seed 3 --output two.safetensors 2>/dev/null
for name in two split; do
  wanted $name >$name.wanted 2>/dev/null
  is "$name: texts to compare with" "$(wc -w <$name.wanted | tr -d ' ') $(sort -u $name.wanted | wc -l | tr -d ' ')" "48 4"
done
for name in two plain replicas; do
  streamed $name <lines >got 2>err
  is "$name: status" "$? $(complaints err)" "0 "
  ok "$name: each line as by --prompt" cmp two.wanted got
done
for name in split tensor; do
  streamed $name <lines >got 2>err
  ok "$name: each line as by --prompt" cmp split.wanted got
done
streamed two --samples 2 <lines >got
awk 'NR % 2' got >first
awk 'NR % 2 == 0' got >second
ok "samples follow each other, of which the first is the one" cmp two.wanted first
is "and the second is another" "$(cat first second | sort -u | wc -l | tr -d ' ')" 8
./bytes init --output bytes.safetensors 2>/dev/null
printf '0 10 255\n' | ./bytes generate --init bytes.safetensors --stream --tokens 40 --quiet >got
is "numbers of bytes, too" "$(awk '/^[0-9 ]*$/ { for (i = 1; i <= NF; i++) n += $i < 256; print NR, NF, n }' got)" "1 40 40"
streamed two </dev/null >got
is "no line: no text" "$? $(wc -c <got | tr -d ' ')" "0 0"

# ---- lines that begin as the one before, as the turns of a chat do: chunks of 64 tokens stay in the cache ----
ok "a longer sequence" build long model.cfg -s model.sequence=192 -s generate.prompts=2
mv lines few
all=$(ids 190)
begin() { echo "$all" | cut -d ' ' -f "1-$1"; }
{
  begin 100
  begin 150
  begin 150
  begin 128
  echo "$(begin 127) 7 7 7"
  echo "$(begin 20) 7 $(begin 100)"
  begin 190
  echo "$(begin 190) $(begin 20)"
  begin 180
} >lines
for products in own library; do
  PEN_PRODUCTS=$products
  wanted long >long.wanted 2>/dev/null
  streamed long <lines >got 2>err
  is "status, products of $products" "$? $(complaints err)" "0 "
  ok "each as by --prompt, products of $products" cmp long.wanted got
done
PEN_PRODUCTS=own
streamed long --samples 3 <lines >got
awk 'NR % 3 == 1' got >first
ok "and so is the first of their samples" cmp long.wanted first
mv few lines

# ---- line by line ----
mkfifo in out
./two generate --init two.safetensors --stream $options --stop "$(awk 'NR == 3 { print $2 }' two.wanted)" --timeout 2 <in >out 2>err &
pid=$!
exec 3>in 4<out
echo 9 >&3
read -r first <&4
is "a line is answered before the next one comes, up to a stop id" "$first" "$(awk 'NR == 3 { print $1, $2 }' two.wanted)"
sleep 3
echo "7 12 8" >&3
read -r second <&4
is "a wait that is longer than --timeout is no stall" "$second" "$(sed -n '1s/ $//p' two.wanted)"
kill -TERM $pid
wait $pid
is "a signal ends the wait" "$? $(complaints err)" "0 "
exec 3>&- 4<&-

# ---- what is wrong ----
refuses() { # INPUT MESSAGE
  printf -- "$1" | streamed two >got 2>err
  is "refused: $1: status" $? 65
  matches "refused: $1: message" "$(complaints err)" "penstock: --stream: line $2"
}
refuses '1\n\n1 300\n' "3: 300: token ids below 300, separated by spaces"
refuses '99999999999999999999999999' "1: 999: token ids below 300, separated by spaces"
refuses '1 -1\n' "1: byte 45: token ids below 300, separated by spaces"
refuses '1 2,3\n' "1: byte 44: token ids below 300, separated by spaces"
ids 131073 | streamed two >got 2>err
is "a line that is too long: status" $? 65
is "a line that is too long: message" "$(complaints err)" "penstock: --stream: line 1: more than 131072 token ids"
fails "a closed input" 66 "--stream: cannot read standard input: Bad file descriptor" streamed two <&-
fails "two kinds of prompts" 64 "generate needs either --prompt TEXT, the text to continue, --prompts FILE or --stream" streamed two --prompt 1

# ---- seal ----
wrapped=$(grep -o -- '-Wl,--wrap=[a-z_,=-]*' "$top_srcdir/runtime/base/seal.c" | tr '\n' ' ')
sealed_build() {
  (cd "$top_builddir" && $CC $CFLAGS -std=gnu17 -DPEN_TEST_SEAL -I"$top_srcdir" $wrapped -o "$scratch/$1_sealed" \
    "$top_srcdir/runtime/base/seal.c" "$scratch/$1.o" libruntime.a $KERNEL_ARCHIVES $OFI_LIBS $RUNTIME_LIBS)
}
ok "the test build" sealed_build two
streamed two_sealed <lines >got
is "it keeps the seal" "$? $(cmp two.wanted got)" "0 "
finish
