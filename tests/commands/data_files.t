#!/bin/sh
# data_files.t: train and eval read several files, of all formats, in the order given; no window spans two; a run goes on in them on any ranks.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/train.sh"

cat >"$scratch/model.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 4; hidden = 16; heads = 2; ffn = 32; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-2; steps = 100000000; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
cd "$scratch" || exit 99
mkdir parts
make_tokens one.bin 250 1   # 15 windows of 16 tokens
make_tokens two.bin 100 2   # 6
make_tokens three.bin 190 3 # 11
make_tokens parts/a9.bin 60 4 # 3
cp three.bin parts/B.bin
make_tokens parts/a10.bin 150 5 # 9
rm parts/*.text
tail -c 200 two.bin >two.ids
{ # as numpy.save() writes it
  printf "\\223NUMPY\\001\\000\\166\\000{'descr': '<u2', 'fortran_order': False, 'shape': (190,), }%58s\\n" ""
  tail -c 380 three.bin
} >three.npy
awk 'BEGIN { for (w = 0; w < 5; w++) printf "{\"text\": \"%s%d%s\"}\n", (w % 3 ? "some" : "no"), 79 * w, substr("abcdefgh", 1, w) }' |
  "$tokens" --field text --end-of-text 10 --pack 16 --single --quiet -o packed.bin - 2>/dev/null # 5
data=

# ---- the windows ----
# With weights that stay, a microbatch of one window has the loss of that window.
ok "weights that stay" build still model.cfg -s optimizer.learning_rate=1e-30 -s optimizer.weight_decay=0
reads() { # NAME WINDOWS OPTION...: the losses of the windows, a multiple of four, in the order in which they are read
  reads_to=$1 reads_steps=$(($2 / 4))
  shift 2
  rm -f reads.log
  train still "$@" --steps $reads_steps --log reads.log --log-microbatches &&
    sed -n 's/.*"microbatch_losses":\[\([^]]*\)\].*/\1/p' reads.log | tr , '\n' >"$reads_to"
}
for file in "one.bin 15" "two.bin 6" "three.bin 11" "packed.bin 5" "parts/a9.bin 3" "parts/a10.bin 9"; do
  name=${file% *}
  reads "${name##*/}.all" 16 --data "$name"
  head -n "${file#* }" "${name##*/}.all" >"${name##*/}.losses"
done
cat one.bin.losses two.bin.losses three.bin.losses packed.bin.losses >wanted # 37
ok "four files of four formats" reads got 76 --ids 16 --data one.bin --data two.ids --data three.npy --data packed.bin
is "have the windows of each, one file after the other" "$(head -n 37 got | cksum)" "$(cksum <wanted)"
is "which all differ" "$(sort -u wanted | wc -l)" 37
is "and once more in the next epoch" "$(sed -n 38,74p got | cksum)" "$(cksum <wanted)"
is "which the log has" "$(log_field reads.log epoch | uniq -c | tr -s ' \n' ' ')" " 9 1 9 2 1 3 "
ok "shuffled" reads got 148 --shuffle --ids 16 --data one.bin --data two.ids --data three.npy --data packed.bin
for epoch in 0 1 2 3; do
  tail -n +$((1 + 37 * epoch)) got | head -n 37 >order
  is "epoch $((epoch + 1)): every window of all files once" "$(sort order | cksum)" "$(sort wanted | cksum)"
  ok "epoch $((epoch + 1)): not in the order of the files" sh -c '! cmp -s order wanted'
done

# ---- patterns ----
cat three.bin.losses a10.bin.losses a9.bin.losses two.bin.losses >wanted # 29
ok "a pattern and a file" reads got 32 --data 'parts/*.bin' --data two.bin
is "the files that match are read in the order of their bytes" "$(head -n 29 got | cksum)" "$(cksum <wanted)"
cp two.bin '[x].bin'
ok "a file's name that is a pattern, too" reads got 4 --data '[x].bin'
is "is the file" "$(cksum <got)" "$(head -n 4 two.bin.losses | cksum)"
refuses "a pattern that no file matches" 66 "--data parts/*.txt: no file matches this pattern" still --steps 1 --data 'parts/*.txt' --data one.bin
refuses "a file that is not there" 66 "none.bin: No such file or directory" still --steps 1 --data one.bin --data none.bin
head -c 1100 one.bin >cut.bin
refuses "a file that is damaged" 65 "cut.bin: 1100 bytes: its header counts 250 tokens*" still --steps 1 --data two.bin --data cut.bin
make_tokens short.bin 16
refuses "a file without a window" 65 "short.bin: 16 tokens: one window of sequence 16 needs 17" still --steps 1 --data two.bin --data short.bin
refuses "an output that a pattern matches" 64 "--metrics parts/a9.bin: *--data*" still --steps 1 --data 'parts/*' --metrics parts/a9.bin

# ---- a blend ----
# Of n windows one.bin has floor(0.7 n + 1/2). two.bin has 6 windows: its second epoch begins after 20.
blend="--data one.bin=0.7 --data two.bin=.3"
ok "a blend" reads got 40 $blend
printf '%s\n' 0 1 0 0 0 1 0 0 1 0 >turns
cat turns turns turns turns | awk '
  FILENAME == ARGV[1] { one[a++] = $0; next }
  FILENAME == ARGV[2] { two[b++] = $0; next }
  { print $0 == 0 ? one[i++ % a] : two[j++ % b] }' one.bin.losses two.bin.losses - >wanted
ok "has the windows of each file in its order, by their weights, from epoch to epoch" cmp wanted got
ok "shuffled" reads got 40 --shuffle $blend
for file in one.bin two.bin; do
  grep -Fxf $file.losses got | head -n $(wc -l <$file.losses) >order
  is "$file: every window once an epoch" "$(sort order | cksum)" "$(sort $file.losses | cksum)"
  ok "$file: not in the order of the file" sh -c "! cmp -s order $file.losses"
done
cp two.bin two=2
ok "a name that ends like a weight" reads got 4 --data two=2
is "is that of the file" "$(cksum <got)" "$(head -n 4 two.bin.losses | cksum)"
ok "a weight alone" reads got 4 --data two.bin=2
is "is of no use" "$(cksum <got)" "$(head -n 4 two.bin.losses | cksum)"
refuses "a file without a weight" 64 "--data two.bin: it has no weight, and others have: give each one, or none" \
  still --steps 1 --data one.bin=2 --data two.bin
for weight in 0 -1 1e3 0.0000000001 1000000.1 nan; do
  refuses "the weight $weight" 64 "--data two.bin=$weight: a weight is above 0 and at most 1000000, with at most 9 decimals" \
    still --steps 1 --data one.bin=1 --data two.bin=$weight
done
refuses "the weight of several files" 64 "--data parts/*: 3 files match, and a weight is that of one file" still --steps 1 --data one.bin=1 --data 'parts/*=2'

# ---- a run that is resumed ----
ok "a plan" build two model.cfg
ok "on four ranks" build four model.cfg -s pipeline.ranks=4 -s pipeline.schedule=zb_h1
ok "with longer windows" build longer model.cfg -s model.sequence=24
all() { # NAME OPTION...: trains with four files
  all_name=$1
  shift
  train "$all_name" --ids 16 --data one.bin --data two.ids --data 'parts/a*' "$@"
}
for order in "" --shuffle; do
  rm -rf whole parted
  ok "a run of two epochs $order" all two $order --steps 18 --checkpoint whole
  ok "one that ends in the second file" all two $order --steps 5 --checkpoint parted
  ok "goes on on four ranks" all four $order --steps 11 --resume --checkpoint parted
  is "without a word" "$(complaints err)" ""
  ok "then on two" all two $order --steps 18 --resume --checkpoint parted
  ok "and has the checkpoint of the run that was not interrupted" diff -r whole/latest/ parted/latest/
done
rm -rf whole
ok "a run" all two --steps 5 --checkpoint whole
is "the manifest has each file" "$(grep -o '"bytes": [0-9]*' whole/latest/manifest.json | tr '\n' ' ')" \
  "\"bytes\": 1524 \"bytes\": 200 \"bytes\": 1324 \"bytes\": 1144 "
refuses "another order of the files" 65 "--data two.ids and 3 more files: not the files that whole/step-00000005 has read: its checksum is another one; \
--new-data reads them from their beginning" two --ids 16 --data two.ids --data one.bin --data 'parts/a*' --steps 6 --resume --checkpoint whole
refuses "fewer files" 65 "--data one.bin: not the file that whole/step-00000005 has read: *" two --data one.bin --steps 6 --resume --checkpoint whole
cp -R whole long
ok "longer windows" all longer --steps 6 --resume --checkpoint long
is "continue after as many tokens, which is said" "$(complaints err)" "penstock: one.bin and 3 more files: windows of 24 tokens, before of 16: continues after \
320 tokens of epoch 1; of several files, some are read again or left out in this epoch"
cp -R whole damaged
sed -i 's/"bytes": 200/"bytes": 202/' damaged/latest/manifest.json
refuses "a manifest that was changed" 65 "*manifest.json: data: its checksum does not fit the rest: the file was damaged" \
  two --ids 16 --data one.bin --data two.ids --data 'parts/a*' --steps 6 --resume --checkpoint damaged

for order in "" --shuffle; do
  rm -rf mixed parted
  ok "a run of a blend $order" train two $order $blend --steps 12 --checkpoint mixed
  ok "one that ends before" train two $order $blend --steps 5 --checkpoint parted
  ok "goes on on four ranks" train four $order $blend --steps 12 --resume --checkpoint parted
  ok "and has the checkpoint of the run that was not interrupted" diff -r mixed/latest/ parted/latest/
done
refuses "other weights" 65 "--data one.bin and 1 more file: not the files that mixed/step-00000012 has read: its checksum is another one; *" \
  two --shuffle --data one.bin=0.6 --data two.bin=.4 --steps 13 --resume --checkpoint mixed

# ---- eval and score ----
is "eval reads several, too" "$(./still eval --data one.bin --data two.bin --data three.bin --checkpoint whole --quiet 2>err | sed -n 's/.*"tokens":\([0-9]*\).*/\1/p')" 512
ok "and the evaluation of a run" train still --data one.bin --eval-data two.bin --eval-data 'parts/*' --eval-every 1 --steps 1 --log eval.log --overwrite
is "which has all their full steps" "$(log_field eval.log eval_tokens)" 448
./still score --data one.bin --data two.bin --checkpoint whole --output - >out 2>err
is "score reads one" "$? $(complaints err)" "64 penstock: --data: score reads one file, and 2 were given"

# ---- two hosts ----
# shellcheck disable=SC2016 # the inner shell expands them
on_two='for i in 1 2; do on "host$i" timeout 300 ./far train --no-secret --quiet --steps 1 --data "of$i/*" >"out.$i" 2>"err.$i" & done
  wait $! && wait %1'
two_hosts() {
  ok "a plan for two hosts" build far model.cfg -s cluster.hosts=[host1,host2] -s cluster.port=$((20000 + $$ % 12000)) -s cluster.bind=none
  cp -R parts of1
  cp -R parts of2
  ok "with the same files" sh "$top_srcdir/tests/support/hosts.sh" 2 sh -c "$on_two"
  rm of2/a10.bin of2/B.bin
  sh "$top_srcdir/tests/support/hosts.sh" 2 sh -c "$on_two" >out 2>&1
  is "with other files: status" $? 65
  matches "with other files: message" "$(complaints err.2)" "*penstock: rank 1 was started with another --data than rank 0*"
}
if test -z "$OFI_ARCHIVES"; then
  skip "two hosts" "no libfabric here"
else
  sh "$top_srcdir/tests/support/hosts.sh" 2 true
  if test $? -eq 77; then skip "two hosts" "no network namespaces here"; else two_hosts; fi
fi
finish
