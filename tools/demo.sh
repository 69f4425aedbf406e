#!/bin/sh
# demo.sh BUILD_DIR: trains the demo's Llama on text that this machine already has, and says how far it came.
#
# Text: licences, C headers and packages' copyright files, in the order of their names, 6 MB of it at most and 4 MB at least.
set -eu
cd "$1"
mkdir -p demo

least=4000000
most=6000000
if test ! -s demo/text.bin; then
  find /usr/share/common-licenses /usr/include /usr/share/perl /usr/share/doc -type f \
      \( -path '/usr/share/common-licenses/*' -o -name '*.h' -o -name '*.pl' -o -name copyright \) 2>/dev/null |
    LC_ALL=C sort | while IFS= read -r file; do
      # Whole files only, and text only: a NUL byte marks the others.
      if LC_ALL=C grep -q . "$file" && ! LC_ALL=C grep -qP '\x00' "$file"; then cat "$file"; fi
    done 2>/dev/null | head -c "$most" >demo/text.txt || true
  bytes=$(wc -c <demo/text.txt)
  if test "$bytes" -lt "$least"; then
    echo "demo: only $bytes bytes of text found under /usr/include and /usr/share; $least are wanted" >&2
    exit 1
  fi
  ./penstock-tokens --bytes -o demo/text.bin demo/text.txt
fi

./penstock-demo train --overwrite --data demo/text.bin --checkpoint demo/checkpoint --log demo/log.json

# The mean of the last ten steps says more than the last one.
awk '{ match($0, /"loss":[-+0-9.eE]+/); loss = substr($0, RSTART + 7, RLENGTH - 7)
       if (NR == 1) first = loss
       last[NR % 10] = loss
       match($0, /"step_ms":[-+0-9.eE]+/); ms += substr($0, RSTART + 10, RLENGTH - 10) }
     END { for (i in last) { sum += last[i]; n++ }
           printf "demo: %d steps in %.0f s: loss from %.3f to %.3f (mean of the last %d); checkpoint in demo/checkpoint\n",
                  NR, ms / 1000, first, sum / n, n
           if (sum / n >= 2.6) { print "demo: the loss did not fall below 2.6" ; exit 1 } }' demo/log.json

echo "demo: a text that it generates after \"The license \":"
./penstock-demo generate --checkpoint demo/checkpoint --prompt "The license " --tokens 300 --temperature 0.6
