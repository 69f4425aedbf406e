#!/bin/sh
# unread.t: nobody reads standard error, or standard output: words are dropped and counted, results wait; a signal or a lost rank ends the ranks
# and the command all the same.
. "${top_srcdir:-.}/tests/support/lib.sh"
command -v python3 >/dev/null || skip_all "no python3 here"
describe_ranks llama 4 32 48 16
make_tokens "$scratch/data.bin" 20000
ok "a plan is built" build llama "$scratch/llama.cfg"
ok "a checkpoint is made" "$scratch/llama" train --data "$scratch/data.bin" --steps 2 --quiet --checkpoint "$scratch/ckpt"
script=$top_srcdir/tests/commands/unread.py
case $script in /*) ;; *) script=$PWD/$script ;; esac
(cd "$scratch" && timeout 600 python3 "$script" ./llama data.bin ckpt >tried 2>err) || sed 's/^/# /' "$scratch/err"
# saw NAME LINE: what was tried, the status, and whether a rank was left.
saw() { matches "$1" "$(cat "$scratch/tried")" "*$2*"; }
saw "standard error is full: SIGTERM ends the run" "standard error SIGTERM 0 False"
saw "standard error is full: SIGINT, too" "standard error SIGINT 0 False"
saw "standard error is full: a lost rank, too" "standard error rank 75 False"
saw "standard output is full: SIGTERM ends the command" "standard output SIGTERM 143 False"
saw "standard output is full: SIGINT, too" "standard output SIGINT 130 False"
saw "standard output is full: SIGHUP, too" "standard output SIGHUP 129 False"
saw "standard output is full: a lost rank, too" "standard output rank 75 False"
saw "nobody reads the result of eval: SIGTERM ends the command" "a result SIGTERM 143 False"
saw "nobody reads the result of eval: SIGINT, too" "a result SIGINT 130 False"
saw "results wait for their reader" "a late reader has all True 0"
saw "dropped words are counted" "dropped words are counted True True"

# ---- how far a program is, on a terminal that nobody reads ----
full() { python3 "$(dirname "$script")/full_terminal.py" "$@"; }
echo text >"$scratch/text"
is "penstock-tokens ends" "$(full "$tokens" --bytes -o "$scratch/text.bin" "$scratch/text")" 0
cat >"$scratch/plan.cfg" <<END
$(grep -v '^pipeline' "$scratch/llama.cfg" | grep -v '^batch')
plan = { ranks = 2; sequences = 4; memory_mib = 256; };
END
is "penstock-plan ends" "$(full "$top_builddir/penstock-plan" --refine=0 "$scratch/plan.cfg")" 0
finish
