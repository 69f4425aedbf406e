#!/bin/sh
# tokens.t: penstock-tokens: the format, joined files, and every way it can be refused.
# Runs in the build folder; PENSTOCK_TOKENS names another program.

program=${PENSTOCK_TOKENS:-./penstock-tokens}
case $program in /*) ;; *) program=$PWD/$program ;; esac
build=$PWD
if [ ! -x "$program" ]; then
  echo "1..0 # SKIP $program is not built"
  exit 0
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
cd "$work" || exit 99

count=0
# ok NAME COMMAND...: one test, passed if the command succeeds.
ok() {
  name=$1
  shift
  count=$((count + 1))
  if "$@"; then
    echo "ok $count - $name"
  else
    echo "not ok $count - $name"
    sed 's/^/# /' err 2>/dev/null
  fi
}

# Status of the program in $status, its standard error in the file err, its output in out.
tokens() {
  "$program" "$@" >out 2>err
  status=$?
}

# refused STATUS TEXT: the last run ended so, said so, and left neither output nor leftovers.
refused() {
  [ "$status" -eq "$1" ] && grep -qF -- "$2" err && [ ! -e t.bin ] && [ ! -e t.bin.tmp ]
}

# int32 INDEX FILE: one number of the header.
int32() {
  od -An -td4 -j "$((4 * $1))" -N 4 "$2" | tr -d ' '
}

# The bytes of a file's tokens, computed independently: each uint16 as a character. $1 FILE
decode() {
  od -An -v -tu2 -w2 -j 1024 "$1" | awk '{ if ($1 > 255) exit 1; printf "%03o\n", $1 }' |
    while read -r octal; do printf "\\$octal"; done
}

valid() { # FILE COUNT
  [ "$(int32 0 "$1")" = 20240520 ] && [ "$(int32 1 "$1")" = 1 ] && [ "$(int32 2 "$1")" = "$2" ] &&
    [ "$(wc -c <"$1")" -eq $((1024 + 2 * $2)) ] &&
    [ -z "$(od -An -v -td4 -w4 -j 12 -N 1012 "$1" | grep -v '^ *0$')" ]
}

same_bytes() { # FILE EXPECTED
  decode "$1" | cmp -s - "$2"
}

# ---- what it writes ----
printf 'A penstock\n' >a
printf '\000\001\177\200\376\377' >b
: >empty
tokens --bytes -o t.bin a b
ok 'two files: exit 0' [ "$status" -eq 0 ]
ok 'two files: header and size' valid t.bin 17
cat a b >joined
ok 'two files: joined without separators, all byte values' same_bytes t.bin joined
ok 'reports tokens and bytes on standard error' grep -q 't\.bin: 17 tokens, 1058 bytes' err
ok 'nothing on standard output' [ ! -s out ]
ok 'no leftover' [ ! -e t.bin.tmp ]

cp t.bin before
tokens --output=t.bin --bytes -- b
ok 'an older file is replaced' valid t.bin 6
rm -f t.bin
tokens --bytes -o t.bin a - b <b
cat a b b >joined
ok 'standard input in its place among files' same_bytes t.bin joined
rm -f t.bin
tokens --bytes -o t.bin empty
ok 'an empty file gives no tokens' valid t.bin 0
rm -f t.bin
tokens --bytes -o t.bin empty a empty
ok 'empty files between others' same_bytes t.bin a
rm -f t.bin
head -c 3000017 /dev/urandom >large
tokens --bytes -o t.bin large
ok 'a large file: header and size' valid t.bin 3000017
# Every second byte is the token's low byte, the others are 0.
tail -c +1025 t.bin | od -An -v -tu1 -w2 | awk '$2 != 0 { exit 1 } { print $1 }' >low
od -An -v -tu1 -w1 large | tr -d ' ' >bytes
ok 'a large file: every byte' cmp -s low bytes
rm -f t.bin low bytes
(printf 'slow '; sleep 0.1; printf 'pipe') | "$program" --bytes -o t.bin - 2>err
printf 'slow pipe' >joined
ok 'a pipe that delivers in pieces' same_bytes t.bin joined
rm -f t.bin
umask 027
tokens --bytes -o t.bin a
umask 022
ok 'respects the umask' [ "$(stat -c %a t.bin)" = 640 ]
rm -f t.bin

# ---- ids, end-of-text, JSON lines ----
printf '\001\000\002\001\377\377' >ids16
printf '\001\000\002\000\003\000\000\000' >ids32
tokens --ids 16 -o t.bin ids16
ok 'ids of 16 bits: as they are' sh -c 'tail -c +1025 t.bin | cmp -s - ids16'
rm -f t.bin
tokens --ids 32 -o t.bin ids32
ok 'ids of 32 bits: as llm.c has them for Llama 3' sh -c 'tail -c +1025 t.bin | cmp -s - ids32'
ok 'and its header' [ "$(int32 0 t.bin) $(int32 1 t.bin) $(int32 2 t.bin) $(int32 3 t.bin)" = '20240801 7 2 0' ]
rm -f t.bin
tokens --ids 32 -o t.bin ids16
ok 'half an id: 65' refused 65 'ids16: its size is not a multiple of 4 bytes'
printf '{"text": "ab", "n": 1}\n\n {"n": 2, "text": "c\\u00e9\\u0000"}' >lines.jsonl
tokens --field text --end-of-text 10 -o t.bin lines.jsonl
printf 'ab\nc\303\251\000\n' >joined
ok 'a field of JSON lines, documents ended' same_bytes t.bin joined
rm t.bin
tokens --field text --bytes --end-of-text 10 -o t.bin lines.jsonl
ok '--bytes with a field says the same' same_bytes t.bin joined
rm t.bin
tokens --bytes --field text --end-of-text 10 -o t.bin lines.jsonl
ok 'in either order' same_bytes t.bin joined
rm -f t.bin
tokens --bytes --end-of-text 10 -o t.bin a b
printf 'A penstock\n\000\001\177\200\376\377\n' >joined
ok 'text that does not end with it gets the end-of-text token' same_bytes t.bin joined
rm -f t.bin
printf '{"text": "ab"}\n{"text": 3}\n' >bad.jsonl
tokens --field text -o t.bin bad.jsonl
ok 'a field that is no string: 65, with its line' refused 65 'bad.jsonl:2: the field "text" is not a string'
printf '{"text": "ab"}\n{"txt": "c"}\n' >bad.jsonl
tokens --field text -o t.bin bad.jsonl
ok 'no such field: 65, with its line' refused 65 'bad.jsonl:2: no field "text"'
printf '{"text": "ab"\n' >bad.jsonl
tokens --field text -o t.bin bad.jsonl
ok 'no JSON: 65, with its line' refused 65 'bad.jsonl:1: not JSON'

# ---- files of other formats ----
# other NAME WAY START TEXT: a file that begins so is refused, and TEXT is said.
other() {
  # shellcheck disable=SC2059 # the format is made of octal escapes
  printf "$3" >"$1"
  # shellcheck disable=SC2086 # the way is several words
  tokens $2 -o t.bin "$1"
  ok "$1, given to $2: 65" refused 65 "penstock-tokens: $1: $4"
}
other x.xz --bytes '\375\067zXZ\000rest' 'compressed by xz: decompress it first: xz -dc'
other x.parquet --messages 'PAR1\025\004' 'a Parquet file: write its texts as JSON lines, '
other x.npy '--ids 16' '\223NUMPY\001\000' 'a NumPy array: write its numbers alone with Python'
other x.idx '--ids 32' 'MMIDIDX\000\000' 'an index of Megatron-LM: the tokens are in the .bin file beside it'
other x.model --bytes '\n\016\n\005<unk>' 'a tokenizer of SentencePiece: it is for tokens_hf.py'
other tokenizer.model --bytes 'IQ== 0' 'a tokenizer: it is for tokens_hf.py'
other x.json '--field text' '\n[{"text": "a"}]' 'a JSON array: JSON lines are needed'
other x.jsonl '--ids 16' '{"text": "a"}' 'JSON: ids are binary numbers'
printf 'BZh91AY&SYrest' | "$program" --bytes -o t.bin - >out 2>err
status=$?
ok 'from a pipe, too: 65' refused 65 'penstock-tokens: -: compressed by bzip2'
tokens --bytes -o llm.bin a
tokens --ids 16 -o t.bin llm.bin
ok 'a token file: 65' refused 65 'llm.bin: a token file already: use it as it is: --data'

# ---- compressed inputs ----
# A frame of zstd with these bytes as they are, behind one to skip, as pzstd has them.
raw_frame() { # FILE
  printf '\120\052\115\030\004\000\000\000skip\050\265\057\375\040'
  # shellcheck disable=SC2059 # the format is made of octal escapes
  printf "\\$(printf %o "$(wc -c <"$1")")\\$(printf %o $((8 * $(wc -c <"$1") % 256 + 1)))\\$(printf %o $(($(wc -c <"$1") / 32)))\\000"
  cat "$1"
}
alike() { # OPTIONS FILE...: the tokens of the last file are those of the first, which is not compressed
  options=$1 plain=$2
  shift 2
  # shellcheck disable=SC2086 # several words
  tokens $options -o plain.bin "$plain" && tokens $options -o t.bin "$@" && cmp -s plain.bin t.bin
}
has() { grep -q "^#define PEN_$1 1" "$build/config.h"; }
if has ZLIB; then
  gzip -c lines.jsonl >lines # the content says it, not the name
  ok 'gzip: JSON lines' alike '--field text --end-of-text 10' lines.jsonl lines
  gzip -c ids32 | cat >ids32.gz
  ok 'gzip: ids' alike '--ids 32' ids32 ids32.gz
  head -c 1000000 large | gzip -1 >large.gz
  gzip -c empty >>large.gz
  tail -c +1000001 large | gzip -9 >>large.gz
  ok 'gzip: several members, one of them empty' alike --bytes large large.gz
  cp plain.bin large.bin
  gzip -c empty >empty.gz
  ok 'gzip: an empty file' alike --bytes empty empty.gz
  "$program" --bytes -o t.bin - <large.gz >out 2>err
  ok 'gzip: from a pipe' cmp -s t.bin large.bin
  rm -f t.bin
  for bytes in 4 1000 999999; do
    head -c $bytes large.gz >cut.gz
    tokens --bytes -o t.bin cut.gz
    ok "gzip: cut after $bytes bytes: 65" refused 65 'cut.gz: gzip data that are cut short'
  done
  (head -c 5000 large.gz && printf damage && tail -c +5007 large.gz) >bad.gz
  tokens --bytes -o t.bin bad.gz
  ok 'gzip: damaged: 65' refused 65 'bad.gz: damaged gzip data: '
  gzip -c large.gz >twice.gz
  tokens --bytes -o t.bin twice.gz
  ok 'gzip: compressed twice: 65' refused 65 'twice.gz: compressed by gzip: decompress it first'
else
  gzip -c a >a.gz
  tokens --bytes -o t.bin a.gz
  ok 'gzip without its library: 65' refused 65 'compressed by gzip: this penstock-tokens was built without zlib; decompress it first: gzip -dc'
fi
raw_frame lines.jsonl >lines
if has ZSTD; then
  ok 'zstd: JSON lines' alike '--field text --end-of-text 10' lines.jsonl lines
  raw_frame ids32 >ids32.zst
  ok 'zstd: ids' alike '--ids 32' ids32 ids32.zst
  cat b b >joined
  (raw_frame b && raw_frame b) >joined.zst
  ok 'zstd: several frames' alike --bytes joined joined.zst
  raw_frame b | head -c 24 >cut.zst
  rm -f t.bin
  tokens --bytes -o t.bin cut.zst
  ok 'zstd: cut: 65' refused 65 'cut.zst: zstd data that are cut short'
  (raw_frame b && printf damage) >bad.zst
  tokens --bytes -o t.bin bad.zst
  ok 'zstd: damaged: 65' refused 65 'bad.zst: damaged zstd data: '
  if command -v zstd >/dev/null; then
    head -c 1000000 large | zstd -q >large.zst
    tail -c +1000001 large | zstd -q --long=31 >>large.zst
    ok 'zstd: what the program writes, with a window of 2 GiB' alike --bytes large large.zst
  fi
else
  tokens --bytes -o t.bin lines
  ok 'zstd without its library: 65' refused 65 'compressed by zstd: this penstock-tokens was built without libzstd; decompress it first: zstd -dc'
fi
rm -f t.bin

# ---- packed files ----
# field FILE OFFSET BYTES: an unsigned number.
field() {
  od -An -tu"$3" -j "$2" -N "$3" "$1" | tr -d ' '
}
# documents FILE: number:first+length of every document, window by window.
documents() {
  windows=$(field "$1" 16 8) documents=$(field "$1" 24 8)
  at=$(($(wc -c <"$1") - 32 * windows - 16 * documents))
  od -An -v -tu4 -w16 -j $at -N $((16 * documents)) "$1" | awk '{ print $1 ":" $3 "+" $4 }' >listed
  od -An -v -tu4 -w32 -j $((at + 16 * documents)) "$1" | while read -r _ _ _ _ length count targets _; do
    echo "$length/$targets $(head -n "$count" listed | tr '\n' ' ')"
    sed -i "1,${count}d" listed
  done
}
printf '123456789\n123\n12\n1234567\n\n' >text
tokens --bytes --end-of-text 10 --pack 8 --pad-to 2 -o t.bin text
ok 'packing: exit 0' [ "$status" -eq 0 ]
# Pieces of 8 and 3 tokens, then documents of 4, 3, 8 and 1: the 4 joins the 3, then the 1, which fills that window; the 3 is left.
documents t.bin >got
printf '%s\n' '8/7 0:0+8 ' '8/7 3:0+8 ' '8/5 0:7+3 1:0+4 4:0+1 ' '4/2 2:0+3 ' >wanted
ok 'packing: best fit, a long document cut with one token twice' diff wanted got
ok 'packing: the header counts' [ "$(field t.bin 8 4) $(field t.bin 12 4) $(field t.bin 16 8) $(field t.bin 24 8) $(field t.bin 32 8) $(field t.bin 40 8)" = \
  '2 8 4 6 28 21' ]
ok 'packing: every target once' [ "$(field t.bin 40 8)" = $((9 + 3 + 2 + 7)) ]
ok 'packing: reported' grep -q '5 documents in 6 pieces, 4 windows of up to 8 tokens, 21 targets; fill 84.38% of whole windows, 96.43% of' err
rm -f t.bin
tokens --bytes --end-of-text 10 --pack 8 --pad-to 2 --single -o t.bin text
documents t.bin >got
printf '%s\n' '8/7 0:0+8 ' '4/2 0:7+3 ' '4/3 1:0+4 ' '4/2 2:0+3 ' '8/7 3:0+8 ' '2/0 4:0+1 ' >wanted
ok 'one document a window' diff wanted got
rm -f t.bin
tokens --ids 32 --pack 6 -o t.bin ids32
ok 'ids of 32 bits stay so, and padding stops at the window' [ "$(field t.bin 8 4) $(field t.bin 32 8) $(field t.bin 64 4) $(field t.bin 68 4) $(field t.bin 72 4)" = \
  '4 6 131073 3 0' ]
rm -f t.bin
printf '{"text": "ab"}\n{"text": ""}\n{"text": "cd\\n"}\n{"text": "e"}\n' >some.jsonl
tokens --field text --end-of-text 10 --pack 8 --pad-to 8 --single -o t.bin some.jsonl
documents t.bin >got
printf '%s\n' '8/2 0:0+3 ' '8/2 2:0+3 ' '8/1 3:0+2 ' >wanted
ok 'documents are numbered as lines are, the empty too' diff wanted got
rm -f t.bin
awk 'BEGIN { s = 1; for (d = 0; d < 3000; d++) { s = s * 16807 % 2147483647; printf "%*s\n", 1 + s % 150, "" } }' >many
tokens --bytes --end-of-text 10 --pack 256 --pad-to 1 -o t.bin many
ok 'many documents fill their windows' grep -q 'fill 9[89]\.' err
ok 'and none is lost' [ "$(field t.bin 32 8) $(field t.bin 24 8)" = "$(wc -c <many) 3000" ]
rm -f t.bin
: >empty
tokens --bytes --pack 8 -o t.bin empty
ok 'nothing to pack' [ "$status $(field t.bin 16 8) $(wc -c <t.bin)" = '0 0 64' ]
rm -f t.bin

# ---- how far it is, on a terminal ----
if command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1; then
  # Thirty million bytes take some tenths of a second, at the least.
  script -qec "'$program' --bytes --end-of-text 10 --pack 1024 -o t.bin $(yes large | head -n 10 | tr '\n' ' ')" /dev/null | tr '\r' '\n' >seen
  ok 'a bar grows' grep -q '\[#.*\.\] .*% .* MB/s .* left' seen
  ok 'and makes room for the report' grep -q 't\.bin: 3[0-9]* tokens, .* bytes; read .* MB/s' seen
  rm -f t.bin
  script -qec "'$program' --quiet --bytes --end-of-text 10 --pack 1024 -o t.bin large" /dev/null >seen
  ok '--quiet shows none' sh -c '! grep -q "MB/s .* left" seen'
  rm -f t.bin
else
  echo "ok $((count + 1)) - a bar grows # SKIP no script command here"
  count=$((count + 1))
fi

# ---- usage: 64 ----
tokens --bytes --ids 16 -o t.bin a
ok 'two kinds of input: 64' refused 64 'choose one of --bytes, --ids and --field'
tokens --ids 8 -o t.bin a
ok 'ids of 8 bits: 64' refused 64 '--ids 8: 16 or 32'
tokens --bytes --single -o t.bin a
ok 'a window without --pack: 64' refused 64 'they need --pack'
tokens --bytes --pack 1 -o t.bin a
ok 'a window of one token: 64' refused 64 '--pack 1: a whole number from 2 to 1048576'
tokens --bytes --pack 8x -o t.bin a
ok 'no number: 64' refused 64 '--pack 8x: a whole number'
tokens --bytes --end-of-text 65536 -o t.bin a
ok 'a token too large for 16 bits: 64' refused 64 '--end-of-text: a token of 16 bits'
tokens --bytes a
ok 'no output: 64' refused 64 '-o OUT'
tokens -o t.bin a
ok 'no encoding: 64' refused 64 '--bytes'
tokens --bytes -o t.bin
ok 'no file: 64' refused 64 'standard input'
tokens --bytes --octets -o t.bin a
ok 'unknown option: 64' refused 64 'octets'
tokens --bytes a -o
ok 'option without its argument: 64' refused 64 '-o: needs FILE'
tokens --bytes -o - a
ok 'a stream as output: 64' refused 64 'not a stream'
tokens --help
ok '--help: exit 0, every option' sh -c '[ '"$status"' -eq 0 ] && grep -q -- --bytes out && grep -q -- "-o, --output=FILE" out'
tokens --version
ok '--version: exit 0' sh -c '[ '"$status"' -eq 0 ] && grep -q "^penstock-tokens " out'

# ---- input: 65 and 66 ----
tokens --bytes -o t.bin a absent
ok 'an absent file: 66' refused 66 'absent: No such file'
mkdir folder
tokens --bytes -o t.bin a folder
ok 'a folder: 66' refused 66 'folder: is a directory'
tokens --bytes -o t.bin - <folder
ok 'a folder as standard input: 66' refused 66 'is a directory'
if [ "$(id -u)" -ne 0 ]; then
  cp a locked
  chmod 0 locked
  tokens --bytes -o t.bin locked
  ok 'an unreadable file: 66' refused 66 'locked: Permission denied'
fi
truncate -s 2147483637 huge # with the 11 bytes of a: one too many
(ulimit -f 2048; exec "$program" --bytes -o t.bin huge a >out 2>err)
status=$?
ok 'more tokens than an int32 counts: 65, before anything is written' refused 65 'a: more than 2147483647 tokens'
rm -f huge

# ---- output: 73 and 74 ----
tokens --bytes -o nowhere/t.bin a
ok 'no such folder: 73' sh -c '[ '"$status"' -eq 73 ] && grep -q "nowhere/t.bin.tmp: cannot create: No such file" err'
tokens --bytes -o folder a
ok 'a folder as output: 73' sh -c '[ '"$status"' -eq 73 ] && grep -q "folder: cannot create" err && [ -d folder ]'
tokens --bytes -o /dev/null a
ok 'a device as output: 73, and it stays' sh -c '[ '"$status"' -eq 73 ] && [ -c /dev/null ]'
cp a t.bin.tmp
tokens --bytes -o t.bin t.bin.tmp
ok 'its own temporary file as input: 64, and it stays' sh -c '[ '"$status"' -eq 64 ] && cmp -s a t.bin.tmp'
rm -f t.bin.tmp
cp a doc
ln doc other
for input in doc ./doc other -; do
  tokens --bytes -o doc b "$input" <doc
  ok "its input $input as output: 64, and it stays" sh -c '[ '"$status"' -eq 64 ] && cmp -s a doc && grep -q -- "-o doc: the same file as an input" err'
done
(ulimit -f 1; exec "$program" --bytes -o t.bin large >out 2>err)
status=$?
ok 'a file size limit: 74, not a signal' refused 74 'File too large'
cp before t.bin
(ulimit -f 1; exec "$program" --bytes -o t.bin large >out 2>err)
status=$?
ok 'a failed write leaves the older file' sh -c '[ '"$status"' -eq 74 ] && cmp -s before t.bin && [ ! -e t.bin.tmp ]'

# ---- interrupted ----
rm -f t.bin
mkfifo never
exec 3<>never # keeps the pipe open, and empty
"$program" --bytes -o t.bin large never 2>err &
process=$!
tries=0
while [ ! -e t.bin.tmp ] && [ "$tries" -lt 2400 ]; do
  sleep 0.02
  tries=$((tries + 1))
done
sleep 0.05
kill -TERM "$process"
wait "$process" 2>/dev/null
status=$?
exec 3<&-
ok 'SIGTERM: ends as the signal says, nothing left' sh -c '[ '"$status"' -eq 143 ] && [ ! -e t.bin ] && [ ! -e t.bin.tmp ]'

echo "1..$count"
