#!/bin/sh
# indexed_files.t: a file of Megatron-LM with its index is read as a token file of its tokens is; its documents bound attention in packed plans alone.
. "${top_srcdir:-.}/tests/support/lib.sh"
. "$top_srcdir/tests/support/train.sh"
find_python 'import struct' python3 || skip_all "no Python here"

cat >"$scratch/model.cfg" <<'END_OF_MODEL'
model = { family = "llama"; layers = 2; hidden = 16; heads = 2; ffn = 32; vocab = 256; sequence = 16; };
batch = { microbatch = 1; };
optimizer = { learning_rate = 1e-30; weight_decay = 0.0; steps = 100; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END_OF_MODEL
# Writes NAME.bin and NAME.idx of the bytes of a text, with documents of these lengths, as a format of struct and its code say.
cat >"$scratch/write.py" <<'END_OF_WRITER'
import struct, sys
name, text, letter, code, *lengths = sys.argv[1:]
tokens = open(text, "rb").read()
lengths = [int(length) for length in lengths]
lengths += [len(tokens) - sum(lengths)]
with open(name + ".bin", "wb") as file:
    file.write(struct.pack(f"<{len(tokens)}{letter}", *tokens))
with open(name + ".idx", "wb") as file:
    file.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, int(code), len(lengths), len(lengths) + 1))
    file.write(struct.pack(f"<{len(lengths)}i", *lengths))
    starts = [sum(lengths[:i]) * struct.calcsize("<" + letter) for i in range(len(lengths))]
    file.write(struct.pack(f"<{len(lengths)}q", *starts))
    file.write(struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))
END_OF_WRITER
cd "$scratch" || exit 99
make_tokens text.bin 250 1 # 15 windows of 16 tokens
make_tokens two.bin 100 2  # 6
writes() { ok "an index of $*" "$python" write.py "$@"; }
reads() { # NAME BINARY OPTION...: the losses of 16 windows: weights stay, and a microbatch has one window
  reads_to=$1 reads_binary=$2
  shift 2
  rm -f reads.log
  train "$reads_binary" "$@" --steps 4 --log reads.log --log-microbatches &&
    sed -n 's/.*"microbatch_losses":\[\([^]]*\)\].*/\1/p' reads.log | tr , '\n' >"$reads_to"
}
data=

# ---- one stream of tokens ----
ok "a plan" build plain model.cfg
ok "a token file" reads wanted plain --data text.bin
for type in "H 8" "i 4" "q 5"; do
  # shellcheck disable=SC2086 # two words
  writes of${type#* } text.bin.text $type 7 0 9 100 5
  ok "type $type" reads got plain --data "of${type#* }.bin"
  ok "type $type: the same windows" cmp wanted got
done
ok "--ids is for files without an index" reads got plain --ids 32 --data of8.bin
ok "and changes nothing" cmp wanted got
writes small two.bin.text H 8 60
cat >order <<'END'
--data of8.bin --data two.bin
--shuffle --data of8.bin --data two.bin
--data of8.bin=0.7 --data two.bin=0.3
END
while read -r options; do
  # shellcheck disable=SC2086,SC2001 # words
  ok "$options" reads got plain $options
  # shellcheck disable=SC2086,SC2046,SC2001
  ok "a token file in its place" reads expected plain $(echo "$options" | sed 's/of8/text/; s/two/small/')
  ok "is the same" cmp expected got
done <order
ok "weights" ./plain init --output model.safetensors
for command in eval "score --output -"; do
  ./plain $command --init model.safetensors --data text.bin --quiet >expected 2>err
  is "$command reads it" "$(./plain $command --init model.safetensors --data of4.bin --quiet 2>err)" "$(cat expected)"
  ok "with a result" grep -q '"tokens":' expected
done
ok "a run" train plain --data of8.bin --steps 3 --checkpoint run
ok "goes on in it" train plain --data of8.bin --steps 4 --resume --checkpoint run
writes other text.bin.text H 8 8 9 100 5
refuses "with other documents" 65 "--data other.bin: not the file that run/step-00000004 has read: *" plain --steps 5 --resume --checkpoint run --data other.bin

# ---- packed ----
ok "a packed plan" build packed model.cfg -s batch.packed=true
ok "of a file without documents" reads got packed --data text.bin
ok "each window is one" cmp wanted got
writes windows text.bin.text H 8 16 16 32 48 # at the starts of windows alone
ok "and where documents begin with windows" reads got packed --data windows.bin
ok "no loss changes" cmp wanted got
writes windows text.bin.text H 8 16 24 8 # within the third window
ok "a document that begins in the third window" reads got packed --data windows.bin
is "changes its loss alone" "$(diff wanted got | grep -c '^[0-9]') $(diff wanted got | head -n 1)" "1 3c3"
is "all targets count" "$(log_field reads.log tokens | sort -u)" 64

# ---- what is refused ----
refuses "the index itself" 65 "of8.idx: an index of Megatron-LM: give the .bin file beside it, or \*.bin of several" plain --steps 1 --data of8.idx
writes wrong text.bin.text f 7 9
refuses "numbers that are no ids" 65 "wrong.bin: its index wrong.idx: numbers of type float32 (code 7): token ids are uint16 (8), int32 (4) or int64 (5)" \
  plain --steps 1 --data wrong.bin
writes wrong text.bin.text i 4 9
for bytes in 5 33 60; do
  cp wrong.bin cut.bin
  head -c $bytes wrong.idx >cut.idx
  refuses "an index of $bytes bytes" 65 "cut.bin: its index cut.idx: $bytes bytes*" plain --steps 1 --data cut.bin
done
cp wrong.idx cut.idx
head -c 996 wrong.bin >cut.bin
refuses "a file of fewer tokens" 65 "cut.bin: its index cut.idx: its sequences take 1000 bytes as 4 bytes a number, the file has 996" plain --steps 1 --data cut.bin
printf '\377\377\377\377' | dd of=wrong.bin bs=1 seek=40 conv=notrunc 2>/dev/null
refuses "a negative id" 65 "*wrong.bin: token 10 is 4294967295: the model's vocab is 256*" plain --steps 1 --data wrong.bin
writes wrong text.bin.text q 5 9
printf '\1' | dd of=wrong.bin bs=1 seek=87 conv=notrunc 2>/dev/null
refuses "an id of 64 bits" 65 "*wrong.bin: token 10 is 4294967295: the model's vocab is 256*" plain --steps 1 --data wrong.bin
finish
