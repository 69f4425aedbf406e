#!/bin/sh
# topology.t: what penstock-gen says of topology files: every setting missing, of a wrong type, out of bounds, at odds with
# another; includes; overrides. Messages are compared to the letter. PENSTOCK_GEN names another program.

program=${PENSTOCK_GEN:-${top_builddir:-.}/penstock-gen}
case $program in /*) ;; *) program=$PWD/$program ;; esac
if [ ! -x "$program" ]; then
  echo "1..0 # SKIP $program is not built"
  exit 0
fi
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
cd "$work" || exit 99
tab='	'
count=0

# result NAME PASSED: one test; what was said last is shown where it failed.
result() {
  count=$((count + 1))
  if [ "$2" = yes ]; then
    echo "ok $count - $1"
  else
    echo "not ok $count - $1"
    echo "# status $status, wanted $wanted_status: $wanted"
    head -3 err | sed 's/^/# /'
  fi
}

gen() { # ARGUMENT...
  "$program" --check "$@" >out 2>err </dev/null
  status=$?
  said=$(grep -v ': proved: ' err)
}

# refuses STATUS MESSAGE ARGUMENT...: sets $passed.
refuses() {
  wanted_status=$1 wanted=$2
  shift 2
  gen "$@"
  passed=no
  [ "$status" -eq "$wanted_status" ] && [ "$said" = "$wanted" ] && [ ! -s out ] && passed=yes
}

refused() { # NAME STATUS MESSAGE ARGUMENT...
  name=$1
  shift
  refuses "$@"
  result "$name" "$passed"
}

# accepts [WARNING] ARGUMENT...
accepted() { # NAME WARNING ARGUMENT...
  name=$1 wanted=$2 wanted_status=0
  shift 2
  gen "$@"
  passed=no
  [ "$status" -eq 0 ] && [ "$said" = "$wanted" ] && passed=yes
  result "$name" $passed
}

cat >base.cfg <<'END'
pipeline = {
  ranks = 2;
  microbatches = 4;
  schedule = "1f1b";
};
model = {
  family = "llama";
  layers = 4;
  hidden = 32;
  heads = 4;
  ffn = 48;
  vocab = 64;
  sequence = 8;
};
batch = {
  microbatch = 2;
};
optimizer = {
  learning_rate = 1e-3;
  steps = 3;
};
END
accepted "the base file is good" "" base.cfg

# ---- every setting, every wrong type, alone in a file and as an override ----
cat >settings <<'END'
pipeline.ranks	INTEGER	a whole number from 1 to 4096
pipeline.stages_per_rank	INTEGER	a whole number from 1 to 64
pipeline.microbatches	INTEGER	a whole number from 1 to 65536
pipeline.schedule	CHOICE	SCHEDULES
pipeline.zero_bubble	BOOLEAN	true or false
pipeline.warmup	INTEGER	a whole number from 1 to 2
pipeline.placement	CHOICE	"loop" or "v"
pipeline.live_limit	REAL	a number from 1e-30 to 1e+30
pipeline.objective	CHOICE	"makespan", "span" or "p99"
model.family	CHOICE	"mlp", "llama", "qwen2", "qwen3", "qwen3_moe", "dots1", "mistral", "mixtral", "gemma3_text", "gpt2" or "described"
model.layers	INTEGER	a whole number from 1 to 8192
model.hidden	INTEGER	a whole number from 1 to 1048576
model.heads	INTEGER	a whole number from 1 to 65536
model.kv_heads	INTEGER	a whole number from 1 to 65536
model.head_dim	INTEGER	a whole number from 1 to 65536
model.ffn	INTEGER	a whole number from 1 to 4194304
model.experts	INTEGER	a whole number from 1 to 1024
model.experts_per_token	INTEGER	a whole number from 1 to 64
model.moe_ffn	INTEGER	a whole number from 1 to 4194304
model.expert_every	INTEGER	a whole number from 1 to 8192
model.mlp_only	INTEGERS	a list of whole numbers from 0 to 8191
model.router_normalize	BOOLEAN	true or false
model.aux_loss	REAL	a finite number, 0 or more
model.aux_scope	CHOICE	"sequence", "microbatch" or "step"
model.z_loss	REAL	a finite number, 0 or more
model.bias_update	REAL	a finite number, 0 or more
expert_parallel.rows	INTEGER	a whole number from 1 to 1073741824
model.vocab	INTEGER	a whole number from 1 to 16777216
model.sequence	INTEGER	a whole number from 1 to 1048576
model.rope_theta	REAL	a finite number above 0
model.rope_scaling	CHOICE	"none", "linear", "llama3" or "yarn"
model.rope_factor	REAL	a finite number, 1 or more
model.rope_original_sequence	INTEGER	a whole number from 1 to 1048576
model.rope_low_freq_factor	REAL	a finite number above 0
model.rope_high_freq_factor	REAL	a finite number above 0
model.rope_beta_fast	REAL	a finite number above 0
model.rope_truncate	BOOLEAN	true or false
model.rope_attention_factor	REAL	a finite number above 0
model.rope_mscale	REAL	a number from 1e-09 to 1e+09
model.norm_epsilon	REAL	a finite number, 0 or more
model.tie_embeddings	BOOLEAN	true or false
model.dtype	CHOICE	"f32" or "bf16"
model.loss	CHOICE	"cross_entropy", "cross_entropy_sum" or "sum"
model.loss_rows	INTEGER	a whole number from 0 to 1073741824
model.frozen	STRINGS	a list of strings in quotes, at most 1000
batch.microbatch	INTEGER	a whole number from 1 to 65536
batch.loss_group	INTEGER	a whole number from 1 to 65536
partition.virtual_pre	INTEGER	a whole number from 0 to 32768
partition.virtual_post	INTEGER	a whole number from 0 to 32768
partition.layers	INTEGERS	a list of whole numbers from 0 to 32768
partition.before	STRINGS	a list of strings in quotes, at most 1000
partition.balance	CHOICE	"count", "time" or "joint"
partition.unit	CHOICE	"layer" or "block"
data_parallel.replicas	INTEGER	a whole number from 1 to 4096
data_parallel.shard	CHOICE	"none", "optimizer", "gradients" or "weights"
data_parallel.unit	CHOICE	"stage" or "layer"
data_parallel.reduce	CHOICE	"step" or "microbatch"
data_parallel.shard_ranks	INTEGER	a whole number from 1 to 4096
data_parallel.reshard	CHOICE	"step" or "use"
optimizer.name	CHOICE	"adamw", "sgd" or "muon"
optimizer.learning_rate	REAL	a finite number above 0
optimizer.warmup_steps	INTEGER	a whole number from 0 to 1000000000000
optimizer.decay	CHOICE	"constant", "linear", "cosine" or "wsd"
optimizer.decay_steps	INTEGER	a whole number from 1 to 1000000000000
optimizer.steps	INTEGER	a whole number from 1 to 1000000000000
optimizer.minimum_ratio	REAL	a number from 0 to 1
optimizer.beta1	REAL	a number from 0 to below 1
optimizer.beta2	REAL	a number from 0 to below 1
optimizer.epsilon	REAL	a finite number, 0 or more
optimizer.weight_decay	REAL	a finite number, 0 or more
optimizer.weight_decay_groups	STRINGS	a list of strings in quotes, at most 1000
optimizer.groups	STRINGS	a list of strings in quotes, at most 1000
optimizer.clip_norm	REAL	a finite number, 0 or more
optimizer.norm	CHOICE	"2" or "inf"
cluster.device	CHOICE	"auto", "cpu" or "cuda"
cluster.transport	CHOICE	"auto", "shm", "ofi", "ipc" or "nccl"
cluster.hosts	STRINGS	a list of strings in quotes, at most 1000
cluster.ranks_per_host	INTEGER	a whole number from 1 to 16777216
cluster.threads_per_rank	INTEGER	a whole number from 1 to 4096
cluster.peak_tflops	REAL	a number from 1e-06 to 1e+09
cluster.port	INTEGER	a whole number from 1 to 65535
costs.forward	REALS	0, or a number from 1e-30 to 1e+30, or a list of such
costs.backward_input	REALS	0, or a number from 1e-30 to 1e+30, or a list of such
costs.backward_weight	REALS	0, or a number from 1e-30 to 1e+30, or a list of such
costs.send	REALS	0, or a number from 1e-30 to 1e+30, or a list of such
costs.send_host	REALS	0, or a number from 1e-30 to 1e+30, or a list of such
costs.expert_imbalance	REAL	a number from 1 to 1024
costs.byte	REAL	0, or a number from 1e-30 to 1e+30
costs.byte_host	REAL	0, or a number from 1e-30 to 1e+30
costs.overlap	REAL	0, or a number from 1e-30 to 1e+30
costs.live_backward	REAL	0, or a number from 1e-30 to 1e+30
costs.live_weight	REAL	0, or a number from 1e-30 to 1e+30
memory.limit_mib	INTEGER	a whole number from 0 to 1073741824
memory.recompute	CHOICES	"none", "full", "layer", "attention" or "auto", or a list of such
memory.extra_receive_buffers	INTEGER	a whole number from 0 to 65536
memory.snapshot	BOOLEAN	true or false
memory.audit	BOOLEAN	true or false
END

# What no setting of a type allows, in a file.
wrong_values() { # TYPE
  echo '{ a = 1; }'
  case $1 in
  INTEGER) printf '%s\n' 4.5 1e3 '"4"' true four '[1]' '(1, 2)' -1 99999999999999999999 -99999999999999999999 \
    18446744073709551617 9223372036854775808L 0x10000000000000001 1000000000001 2.0 ;;
  REAL) printf '%s\n' '"1"' false one '[0.5]' -1 -1e-300 1e999 nan inf -inf 1e 0x1p3 ;;
  BOOLEAN) printf '%s\n' 1 0 '"true"' yes '[true]' 1.0 ;;
  CHOICE) printf '%s\n' 1 1.5 true none '"no such"' '""' '["none"]' ;;
  INTEGERS) printf '%s\n' 4 '[4, 0.5]' '(1, "a")' '[true]' '"[1]"' '(1, (2))' '[-1]' '[4294967297, 3]' ;;
  REALS) printf '%s\n' '"1"' '[1, -2]' '(1, "2")' true '[1e999]' '((1))' ;;
  STRINGS) printf '%s\n' '"a"' 1 '[1]' '("a", true)' '(("a"))' ;;
  CHOICES) printf '%s\n' '"some"' 1 '[1]' '("none", "some")' '(("none"))' none ;;
  esac
}

# The same on the command line, where strings need no quotes.
wrong_texts() { # TYPE
  echo ''
  case $1 in
  INTEGER) printf '%s\n' 4.5 1e3 four -1 99999999999999999999 18446744073709551617 '[1]' 0x 1,2 ' 3' ;;
  REAL) printf '%s\n' one -1 1e999 nan inf 1.5.2 '[1]' 0x1p3 1e ;;
  BOOLEAN) printf '%s\n' 1 yes '[true]' ;;
  CHOICE) printf '%s\n' nosuch 1 '[none]' '"no such"' ;;
  INTEGERS) printf '%s\n' 4 '[4,0.5]' '[4,' '[1,,2]' '[1,[2]]' '[-1]' ;;
  REALS) printf '%s\n' one '[1,-2]' '[1,]' ;;
  STRINGS) printf '%s\n' a '[a,,b]' ;;
  CHOICES) printf '%s\n' some '[none,some]' ;;
  esac
}

# too_large VALUE: what a message adds where a number is too large for 64 bits or f32.
too_large() {
  case $1 in
  99999999999999999999 | 18446744073709551617 | 9223372036854775808L | 0x10000000000000001 | 1e999 | '[1e999]') echo '; too large' ;;
  esac
}

# SCHEDULES in a message is replaced by the names of the table.
schedules=$(sed -n 's/^PEN_SCHEDULE([a-z0-9_]*, [a-z0-9_]*, [a-z0-9_]*, \("[^"]*"\),.*/\1/p' "$top_srcdir/gen/topology/schedules.def" |
  awk '{ line[NR] = $0 } END { for (i = 1; i <= NR; i++) printf "%s%s", line[i], i == NR - 1 ? " or " : i < NR ? ", " : "" }')
say() { printf '%s\n' "$1" | sed "s/SCHEDULES/$schedules/"; }

while IFS=$tab read -r path type allowed; do
  allowed=$(say "$allowed")
  group=${path%.*} name=${path#*.} good=yes
  wrong_values "$type" >values
  while IFS= read -r value && [ $good = yes ]; do
    printf '%s = {\n  %s = %s;\n};\n' "$group" "$name" "$value" >one.cfg
    refuses 78 "one.cfg:2: $path = $value: $allowed$(too_large "$value")" one.cfg
    good=$passed
  done <values
  result "$path: wrong values in a file" $good
  wrong_texts "$type" >values
  good=yes
  while IFS= read -r value && [ $good = yes ]; do
    refuses 78 "-s $path = $value: $allowed$(too_large "$value")" -s "$path=$value" base.cfg
    good=$passed
  done <values
  result "$path: wrong values as an override" $good
done <settings

# ---- missing ----
while IFS=$tab read -r path what; do
  name=${path#*.}
  grep -v "^  $name = " base.cfg >less.cfg
  refused "$path is missing" 78 "less.cfg: $path: missing; $(say "$what")" less.cfg
done <<'END'
pipeline.ranks	a whole number from 1 to 4096
pipeline.microbatches	a whole number from 1 to 65536
pipeline.schedule	SCHEDULES
model.family	"mlp", "llama", "qwen2", "qwen3", "qwen3_moe", "dots1", "mistral", "mixtral", "gemma3_text", "gpt2" or "described"
model.layers	a whole number from 1 to 8192
model.hidden	a whole number from 1 to 1048576
model.heads	family llama needs it: a whole number from 1 to 65536
model.ffn	family llama needs it: a whole number from 1 to 4194304
model.vocab	family llama needs it: a whole number from 1 to 16777216
model.sequence	a whole number from 1 to 1048576
batch.microbatch	a whole number from 1 to 65536
optimizer.learning_rate	a finite number above 0
optimizer.steps	a whole number from 1 to 1000000000000
END
while IFS=$tab read -r settings what; do
  # shellcheck disable=SC2086 # words are meant to part here
  refused "$settings" 78 "$what" $settings base.cfg
done <<'END'
-s model.rope_factor=8	base.cfg: model.rope_scaling: missing; model.rope_factor needs it: "none", "linear", "llama3" or "yarn"
-s model.rope_scaling=linear	base.cfg: model.rope_factor: missing; model.rope_scaling = "linear" needs it: a finite number, 1 or more
-s model.rope_low_freq_factor=1	base.cfg: model.rope_scaling: missing; model.rope_low_freq_factor needs it: "none", "linear", "llama3" or "yarn"
-s model.rope_scaling=linear -s model.rope_factor=0.5	-s model.rope_factor = 0.5: a finite number, 1 or more
-s model.rope_scaling=llama3 -s model.rope_factor=8	base.cfg: model.rope_original_sequence: missing; model.rope_scaling = "llama3" needs it: a whole number from 1 to 1048576
-s model.rope_scaling=llama3 -s model.rope_factor=8 -s model.rope_original_sequence=4 -s model.rope_high_freq_factor=1	-s model.rope_high_freq_factor = 1: above model.rope_low_freq_factor = 1
-s model.rope_truncate=false	base.cfg: model.rope_scaling: missing; model.rope_truncate needs it: "none", "linear", "llama3" or "yarn"
-s model.rope_scaling=yarn -s model.rope_factor=8	base.cfg: model.rope_original_sequence: missing; model.rope_scaling = "yarn" needs it: a whole number from 1 to 1048576
-s model.rope_scaling=yarn -s model.rope_factor=8 -s model.rope_original_sequence=4 -s model.rope_beta_slow=32	base.cfg: model.rope_beta_fast = 32: above model.rope_beta_slow = 32
-s model.rope_scaling=yarn -s model.rope_factor=8 -s model.rope_original_sequence=4 -s model.rope_theta=1	-s model.rope_theta = 1: above 1, with model.rope_scaling = "yarn"
-s model.family=qwen2 -s model.attention_bias=true	-s model.attention_bias = true: false, with family qwen2
-s model.family=gpt2 -s model.mlp_bias=true	-s model.mlp_bias = true: false, with family gpt2
END
sed '/heads\|ffn\|vocab/d; s/llama/mlp/' base.cfg >mlp.cfg
accepted "mlp needs neither heads nor ffn nor vocab" "" mlp.cfg

# ---- files that are no topology ----
: >empty.cfg
refused "an empty file" 78 "empty.cfg: pipeline.ranks: missing; a whole number from 1 to 4096" empty.cfg
refused "an absent file" 66 "absent.cfg: No such file or directory" absent.cfg
mkdir folder.cfg
refused "a folder" 66 "folder.cfg: Is a directory" folder.cfg
printf 'pipeline = {\n  ranks = \0002;\n};\n' >zero.cfg
refused "a byte of value 0" 78 "zero.cfg:2: a byte of value 0: a topology file is text" zero.cfg

grammar() { # NAME TEXT MESSAGE
  printf "$2" >text.cfg
  refused "$1" 78 "text.cfg:$3" text.cfg
}
hint='syntax error; a topology is made of GROUP = { NAME = VALUE; ... };'
grammar "no value" 'pipeline = {\n  ranks = ;\n};\n' "2: $hint"
grammar "a brace too few" 'pipeline = {\n  ranks = 2;\n' "3: $hint"
grammar "a brace too many" 'pipeline = { };\n}\n' "2: $hint"
grammar "two values" 'pipeline = {\n ranks = 1 2;\n};' "2: $hint"
grammar "garbage" '\001\377\376 = {\n' "1: $hint"
grammar "a string without end" 'pipeline = {\n schedule = "1f1b;\n};\n' '2: "1f1b;: a string must end on its line'
grammar "a comment without end" 'pipeline = {\n/* schedule = "1f1b";\n};\n' '2: a comment is not closed'
grammar "no such setting" 'pipeline = {\n rank = 4;\n};' "2: pipeline.rank = 4: there is no such setting; did you mean pipeline.ranks?"
grammar "a setting in another's group" 'model = { microbatch = 4; };' \
  "1: model.microbatch = 4: there is no such setting; did you mean batch.microbatch?"
grammar "no such group" '\npipelin = { ranks = 4; };' \
  "2: pipelin = { ranks = 4; }: there is no such group; did you mean pipeline?"
grammar "a group like no other" 'foo = { ranks = 4; };' "1: foo = { ranks = 4; }: there is no such group; the groups are pipeline, model, batch, shapes, partition, data_parallel, expert_parallel, tensor_parallel, optimizer, cluster, costs, memory, plan, generate"
grammar "a setting outside its group" 'ranks = 4;' "1: ranks = 4: there is no such group; did you mean pipeline.ranks?"
grammar "a group that is a number" 'pipeline = 4;' "1: pipeline = 4: a group: pipeline = { NAME = VALUE; ... };"
grammar "a setting given twice" 'pipeline = {\n ranks = 4;\n ranks = 8; };' "3: pipeline.ranks = 8: given before, at text.cfg:2"
grammar "a group given twice" 'batch = { };\n\nbatch = { };\n' "3: batch = { }: given before, at text.cfg:1"
grammar "bytes that are no UTF-8" 'pipeline = { schedule = \377x; };' '1: pipeline.schedule = ?x: '"$schedules"
long=$(printf '%0100000d' 0 | tr 0 9)
printf 'pipeline = { ranks = %s; };\n' "$long" >text.cfg
refused "a very long number" 78 "text.cfg:1: pipeline.ranks = $(printf '%0100d' 0 | tr 0 9)...: a whole number from 1 to 4096; too large" text.cfg
printf '# %s\n' "$long" | cat - base.cfg >text.cfg
accepted "a very long line of comment" "" text.cfg
{ printf '('; printf '(%.0s' $(seq 100); } >nest
grammar "lists within lists" "pipeline = { ranks = $(cat nest); };" "1: (: at most 64 groups and lists within each other"

# ---- the limits of a text ----
# Each is read or refused in a second, which the test of one with a quadratic loop would show: it takes minutes.
many() { yes "$1" | head -n "$2" | awk '{ gsub(/%/, NR); printf "%s", $0 }'; }
grammar "1,001 names in a group" "pipeline = { $(many 'a%=1;' 1001) };" "1: a1001: at most 1000 names in a group, and 10000 in a topology"
grammar "1,001 groups" "$(many 'g%={};' 1001)" "1: g1001: at most 1000 names in a group, and 10000 in a topology"
grammar "10,001 names in groups" "$(many "g%={$(many 'a%=1;' 900)};" 12)" "1: a89: at most 1000 names in a group, and 10000 in a topology"
grammar "1,001 strings in a list" "cluster = { hosts = [$(many '"%",' 1001)\"a\"]; };" \
  "1: cluster.hosts = [$(many '"%",' 1001 | cut -c1-99)...: a list of strings in quotes, at most 1000"
awk '/family/ { printf "family = "; for (i = 0; i < 200000; i++) printf "\"\""; print ";"; next } 1' base.cfg >text.cfg
refused "200,000 strings that are one" 78 "text.cfg:7: model.family = $(many '"" ' 100 | cut -c1-100)...: \"mlp\", \"llama\", \"qwen2\", \"qwen3\", \"qwen3_moe\", \"dots1\", \"mistral\", \"mixtral\", \"gemma3_text\", \"gpt2\" or \"described\"" text.cfg
head -c 1048577 /dev/zero | tr '\0' '#' >text.cfg
refused "more than 1 MiB" 78 "text.cfg: a topology and its includes have at most 1048576 bytes" text.cfg

# ---- includes ----
mkdir -p parts/deep
sed -n 1,5p base.cfg >parts/pipeline.cfg
{ sed -n 6,13p base.cfg; echo '@include "deep/rest.cfg"'; } >parts/model.cfg
sed -n '14,$p' base.cfg >parts/deep/rest.cfg
printf '@include "parts/pipeline.cfg"\n  @include "parts/model.cfg" // and no more\n' >whole.cfg
accepted "includes count from the file that names them" "" whole.cfg
sed -i 's/microbatch = 2/microbatch = 0/' parts/deep/rest.cfg
refused "a message names the included file and its line" 78 \
  "parts/deep/rest.cfg:3: batch.microbatch = 0: a whole number from 1 to 65536" whole.cfg
printf 'batch = {\n  @include "microbatch.cfg"\n};\ncluster = 3;\n' >inner.cfg
echo 'microbatch = 3;' >microbatch.cfg
refused "lines count on after an include" 78 "inner.cfg:4: cluster = 3: a group: cluster = { NAME = VALUE; ... };" inner.cfg
printf '\n@include "absent.cfg"\n' >text.cfg
refused "an absent include" 66 'text.cfg:2: @include "absent.cfg": No such file or directory' text.cfg
printf '@include "\377.cfg"\n' >text.cfg
refused "an absent include whose name is no UTF-8" 66 'text.cfg:1: @include "?.cfg": No such file or directory' text.cfg
mkdir -p ring
echo '@include "b.cfg"' >ring/a.cfg
printf '\n@include "../ring/a.cfg"\n' >ring/b.cfg
refused "a file that includes itself" 78 \
  'ring/b.cfg:2: @include "../ring/a.cfg": a file must not include itself' ring/a.cfg
for i in $(seq 0 17); do echo "@include \"d$((i + 1)).cfg\"" >d$i.cfg; done
refused "includes too deep" 78 'd16.cfg:1: @include "d17.cfg": at most 16 includes within each other' d0.cfg
grammar "an include without quotes" 'batch = {\n@include x.cfg\n};' \
  "2: @include: must be at the start of a line, before a file name in quotes"
grammar "an include amid a line" 'batch = { @include "microbatch.cfg"\n};' \
  "1: @include: must be at the start of a line, before a file name in quotes"
grammar "no include within a comment or a string" '/*\n@include "absent.cfg"\n*/ pipeline = { ranks = "a @include"; };' \
  '3: pipeline.ranks = "a @include": a whole number from 1 to 4096'

# ---- contradictions: OVERRIDES, the setting that the message names, and the reason ----
while IFS=$tab read -r overrides message; do
  set --
  for override in $overrides; do set -- "$@" -s "$override"; done
  refused "$overrides" 78 "$(say "$message")" "$@" base.cfg
done <<'END'
pipeline.schedule=1f1c	-s pipeline.schedule = 1f1c: SCHEDULES
pipeline.schedule=""	-s pipeline.schedule = "": SCHEDULES
pipeline.schedule=zero_bubble_v	base.cfg: pipeline.stages_per_rank = 1: 2, with the schedule zero_bubble_v
pipeline.schedule=gpipe pipeline.stages_per_rank=2	-s pipeline.stages_per_rank = 2: 1, with the schedule gpipe
pipeline.schedule=zero_bubble_v pipeline.stages_per_rank=2 pipeline.placement=loop	-s pipeline.placement = loop: "v", with the schedule zero_bubble_v
pipeline.placement=v	-s pipeline.placement = v: "loop", with the schedule 1f1b
model.family=bloom	-s model.family = bloom: "mlp", "llama", "qwen2", "qwen3", "qwen3_moe", "dots1", "mistral", "mixtral", "gemma3_text", "gpt2" or "described"
model.rope_local_theta=1e4	-s model.rope_local_theta = 1e4: none, with family llama, which has no local layers
model.query_scalar=16	-s model.query_scalar = 16: none, with family llama, where it is model.head_dim
model.family=gemma3_text	base.cfg: model.window: missing; family gemma3_text needs it: a whole number from 0 to 1048576
model.family=gemma3_text model.window=0	-s model.window = 0: 1 or more, with family gemma3_text
model.window=4	-s model.window = 4: 0; family llama has no sliding window
model.heads=5	-s model.heads = 5: a divisor of model.hidden = 32, unless model.head_dim is given
model.kv_heads=3	-s model.kv_heads = 3: a divisor of model.heads = 4
model.kv_heads=8	-s model.kv_heads = 8: a divisor of model.heads = 4
model.head_dim=7	-s model.head_dim = 7: an even number, for rotary positions
model.heads=32	-s model.heads = 32: model.hidden/model.heads = 1 must be even, for rotary positions
model.rope_theta=0	-s model.rope_theta = 0: a finite number above 0
model.family=mlp model.loss=cross_entropy	-s model.loss = cross_entropy: "sum"; family mlp has no targets
model.loss=sum	-s model.loss = sum: "cross_entropy" or "cross_entropy_sum"; family llama has targets
cluster.transport=nccl	-s cluster.transport = nccl: "shm" or "ofi", with the device cpu
cluster.transport=ipc	-s cluster.transport = ipc: "shm" or "ofi", with the device cpu
cluster.hosts=[a,b]	base.cfg: cluster.port: a TCP port on which the first host listens
cluster.hosts=[]	-s cluster.hosts = []: a list of at least one host
pipeline.ranks=3 cluster.hosts=[a,b,a] cluster.port=7000	-s cluster.hosts = [a,b,a]: hosts that no list has a second time, not a twice
cluster.hosts=[a,b] cluster.spares=[c,a] cluster.port=7000	-s cluster.spares = [c,a]: hosts that no list has a second time, not a twice
cluster.ranks_per_host=3	-s cluster.ranks_per_host = 3: 2 ranks x replicas on 1 hosts make 2
cluster.ranks_per_host=2 tensor_parallel.ranks=2	-s cluster.ranks_per_host = 2: 4 ranks x replicas x tensor ranks on 1 hosts make 4
tensor_parallel.ranks=2 cluster.hosts=[a,b,c] cluster.port=7000	-s cluster.hosts = [a,b,c]: a number of hosts that divides the 4 ranks x replicas x tensor ranks
tensor_parallel.ranks=3	-s tensor_parallel.ranks = 3: a power of two
tensor_parallel.ranks=8	-s tensor_parallel.ranks = 8: a divisor of model.heads = 4
tensor_parallel.ranks=2 shapes.sequence=[5] shapes.microbatches=[4]	-s tensor_parallel.ranks = 2: a divisor of shapes.sequence = 5
tensor_parallel.ranks=2 tensor_parallel.splits=8	-s tensor_parallel.splits = 8: a divisor of model.heads = 4
tensor_parallel.splits=4 model.vocab=9	-s tensor_parallel.splits = 4: so few that each split has tokens of model.vocab = 9
tensor_parallel.splits=256 model.layers=65 model.heads=256 model.head_dim=2 model.ffn=256 model.vocab=256 model.sequence=256	-s tensor_parallel.splits = 256: at most 16384 splits of layers; x model.layers = 65
tensor_parallel.ranks=2 tensor_parallel.splits=1	-s tensor_parallel.splits = 1: a power of two, at least tensor_parallel.ranks = 2
memory.recompute=[none,none,none]	-s memory.recompute = [none,none,none]: one choice, or a list of 2, one a stage
costs.forward=[1,2,3]	-s costs.forward = [1,2,3]: one number, or a list of 2, one a stage
memory.recompute=[full]	-s memory.recompute = [full]: one choice, or a list of 2, one a stage
costs.forward=[1]	-s costs.forward = [1]: one number, or a list of 2, one a stage
costs.gather=(1)	-s costs.gather = (1): one number, or a list of 2, one a stage
costs.send_host=[1,2,3]	-s costs.send_host = [1,2,3]: one number, or a list of 2, one a stage
costs.backward_weight=1.7976931348623157e308	-s costs.backward_weight = 1.7976931348623157e308: 0, or a number from 1e-30 to 1e+30, or a list of such
costs.forward=1e-320	-s costs.forward = 1e-320: 0, or a number from 1e-30 to 1e+30, or a list of such
cluster.speed=[1e-320,1e-320]	-s cluster.speed = [1e-320,1e-320]: a number from 1e-09 to 1e+09, or a list of such
pipeline.ranks=4 pipeline.schedule=inference partition.virtual_post=32768	-s partition.virtual_post = 32768: leaves stage 3 with no layer: less than its share of 8193
costs.send=[]	-s costs.send = []: one number, or a list of 2, one a stage
optimizer.decay=wsd optimizer.warmup_steps=2 optimizer.decay_steps=2	-s optimizer.decay_steps = 2: at most optimizer.steps - optimizer.warmup_steps = 1
optimizer.decay=wsd optimizer.warmup_steps=3 optimizer.decay_steps=2	-s optimizer.decay_steps = 2: at most optimizer.steps - optimizer.warmup_steps = 0
optimizer.beta1=1	-s optimizer.beta1 = 1: a number from 0 to below 1
optimizer.minimum_ratio=1.01	-s optimizer.minimum_ratio = 1.01: a number from 0 to 1
optimizer.learning_rate=0	-s optimizer.learning_rate = 0: a finite number above 0
optimizer.learning_rate=1e-400	-s optimizer.learning_rate = 1e-400: a finite number above 0
optimizer.learning_rate=3.5e38	-s optimizer.learning_rate = 3.5e38: a finite number above 0; too large
optimizer.weight_decay=1e40	-s optimizer.weight_decay = 1e40: a finite number, 0 or more; too large
optimizer.learning_rate=-0.0	-s optimizer.learning_rate = -0.0: a finite number above 0
model.layers=1 partition.balance=count	-s model.layers = 1: leaves stage 1 with no layer: at least one for each of the 2 stages, ranks x stages_per_rank
pipeline.ranks=8 pipeline.microbatches=8 partition.balance=count	base.cfg:8: model.layers = 4: leaves stage 4 with no layer: at least one for each of the 8 stages, ranks x stages_per_rank
partition.virtual_pre=4	-s partition.virtual_pre = 4: leaves stage 0 with no layer: less than its share of 4
partition.virtual_post=9	-s partition.virtual_post = 9: leaves stage 1 with no layer: less than its share of 6
partition.layers=[4]	-s partition.layers = [4]: a list of 2 counts, one a stage; this one has 1
partition.layers=[1,2]	-s partition.layers = [1,2]: counts whose sum is model.layers = 4, not 3
partition.layers=[32768,32768]	-s partition.layers = [32768,32768]: counts whose sum is model.layers = 4, not 65536
pipeline.ranks=4 partition.layers=[2,0,1,1]	-s partition.layers = [2,0,1,1]: stage 1 has no layer; only the first and the last may have none
partition.before=[]	-s partition.before = []: a list of 1 names, one for each stage except the first; this one has 0
partition.before=[model.layers.1.mlq]	-s partition.before = [model.layers.1.mlq]: family llama of 4 layers has no block "model.layers.1.mlq"; did you mean "model.layers.1.mlp"? Its blocks are model.embed_tokens, model.layers.N.self_attn, model.layers.N.mlp, model.norm, lm_head
partition.before=[model.layers.4]	-s partition.before = [model.layers.4]: family llama of 4 layers has no block "model.layers.4"; did you mean "model.layers.3"? Its blocks are model.embed_tokens, model.layers.N.self_attn, model.layers.N.mlp, model.norm, lm_head
partition.before=[model.layers.1.]	-s partition.before = [model.layers.1.]: family llama of 4 layers has no block "model.layers.1."; did you mean "model.layers.1"? Its blocks are model.embed_tokens, model.layers.N.self_attn, model.layers.N.mlp, model.norm, lm_head
partition.before=[model.embed_tokens]	-s partition.before = [model.embed_tokens]: "model.embed_tokens" is the model's first block: stage 0 would be left with nothing
pipeline.ranks=3 partition.before=[model.layers.1.mlp,model.layers.1]	-s partition.before = [model.layers.1.mlp,model.layers.1]: names in the order of the model; "model.layers.1" does not come after "model.layers.1.mlp"
pipeline.ranks=3 partition.before=[lm_head,lm_head]	-s partition.before = [lm_head,lm_head]: names in the order of the model; "lm_head" does not come after "lm_head"
partition.layers=[2,2] partition.before=[lm_head]	-s partition.before = [lm_head]: not together with partition.layers
partition.layers=[2,2] partition.balance=time	-s partition.balance = time: "count", together with partition.layers, which leaves nothing to balance
model.layers=1 pipeline.ranks=6 pipeline.microbatches=6	-s model.layers = 1: leaves a stage with no block: the model can be cut into at most 5 stages, ranks x stages_per_rank is 6
pipeline.ranks=4 pipeline.stages_per_rank=2 partition.balance=time	base.cfg:8: model.layers = 4: leaves a stage with no layer: the model can be cut into at most 6 stages, ranks x stages_per_rank is 8
model.layers=8192 pipeline.microbatches=65536	-s pipeline.microbatches = 65536: microbatches times model.layers are at most 4194304: at most 512 with 8192 layers
pipeline.ranks=4096 pipeline.stages_per_rank=64 pipeline.microbatches=65536	-s pipeline.microbatches = 65536: at most 8000000 actions; 4096 ranks x 64 stages and these would make 103078952960
model.sequence=1048576 batch.microbatch=65536	-s batch.microbatch = 65536: at most 2^40 elements a tensor; x model.sequence = 1048576 x 64 wide is more
model.sequence=1048576 batch.microbatch=65536 model.heads=65536 model.head_dim=65536	-s batch.microbatch = 65536: at most 2^40 elements a tensor; x model.sequence = 1048576 x 4294967296 wide is more
model.hidden=1048576 model.ffn=4194304	-s model.hidden = 1048576: at most 2^40 elements a tensor; x 4194304 wide is more
pipelin.ranks=3	-s pipelin.ranks = 3: there is no such setting; did you mean pipeline.ranks?
ranks=3	-s ranks = 3: there is no such setting; did you mean pipeline.ranks?
model.hiden=3	-s model.hiden = 3: there is no such setting; did you mean model.hidden?
optimizer.beta=3	-s optimizer.beta = 3: there is no such setting; did you mean optimizer.beta1?
modl.layers=3	-s modl.layers = 3: there is no such setting; did you mean model.layers?
batch=3	-s batch = 3: a group: -s batch.NAME=VALUE, with one of microbatch, loss_group, packed
foo=3	-s foo = 3: there is no such setting; a setting is GROUP.NAME, and the groups are pipeline, model, batch, shapes, partition, data_parallel, expert_parallel, tensor_parallel, optimizer, cluster, costs, memory, plan, generate
foo.bar=3	-s foo.bar = 3: there is no such setting; a setting is GROUP.NAME, and the groups are pipeline, model, batch, shapes, partition, data_parallel, expert_parallel, tensor_parallel, optimizer, cluster, costs, memory, plan, generate
partitio.layers=[3]	-s partitio.layers = [3]: there is no such setting; did you mean partition.layers?
END

# ---- few microbatches: the bubble is that of the simulated step of the schedule ----
bubble() { # OPTION...: as --print=report has it
  "$program" --print=report "$@" base.cfg 2>/dev/null | sed -n 's/^  "bubble": \([0-9.e-]*\),$/\1/p' | awk '{ printf "%.3f", $1 }'
}
few() { # MICROBATCHES ORDER OPTION...: the warning
  few_count=$1 few_order=$2
  shift 2
  echo "-s pipeline.microbatches = $few_count: warning: fewer than the 2 ranks; the simulated bubble of $few_order is \
$(bubble "$@" -s pipeline.microbatches="$few_count")"
}
more='; more microbatches make it smaller'
accepted "fewer microbatches than ranks earn a warning" "$(few 1 1f1b)" -s pipeline.microbatches=1 base.cfg
equal='-s costs.forward=1 -s costs.backward_input=1 -s costs.backward_weight=1'
accepted "its bubble is (P-1)/(m+P-1) with equal costs" \
  '-s pipeline.microbatches = 1: warning: fewer than the 2 ranks; the simulated bubble of 1f1b is 0.500' $equal -s pipeline.microbatches=1 base.cfg
split='-s pipeline.zero_bubble=true'
accepted "and that of a split backward another" \
  '-s pipeline.microbatches = 1: warning: fewer than the 2 ranks; the simulated bubble of 1f1b is 0.400' $equal $split -s pipeline.microbatches=1 base.cfg
accepted "fewer than twice as many earn a hint" \
  "-s pipeline.microbatches = 3: hint: fewer than 2 x 2 ranks; the simulated bubble of 1f1b is 0.250$more" $equal -s pipeline.microbatches=3 base.cfg
accepted "twice as many do not" "" $equal -s pipeline.microbatches=4 base.cfg
accepted "nor does one rank" "" -s pipeline.ranks=1 -s pipeline.microbatches=1 base.cfg
accepted "several shapes earn one hint" \
  "-s pipeline.microbatches = 3: hint: fewer than 2 x 2 ranks; the simulated bubble of 1f1b is 0.250$more" \
  $equal -s pipeline.microbatches=3 -s batch.packed=true -s shapes.sequence=[2,4] -s shapes.microbatches=[3,3] base.cfg
"$program" --print=actions -s pipeline.microbatches=3 base.cfg >few.actions 2>/dev/null
accepted "actions that are given have their own" \
  "-s pipeline.microbatches = 3: hint: fewer than 2 x 2 ranks; the simulated bubble of the given actions is 0.250$more" \
  $equal -s pipeline.microbatches=3 --actions=few.actions base.cfg

# ---- overrides that hold ----
accepted "the last override holds" "" -s pipeline.microbatches=1 -s pipeline.microbatches=4 base.cfg
accepted "strings with and without quotes" "" -s 'model.family="llama"' -s pipeline.schedule=gpipe base.cfg
accepted "an arena of more than 2^32 units" "" -s pipeline.stages_per_rank=4 -s pipeline.schedule=interleaved -s pipeline.microbatches=32 -s pipeline.ranks=8 \
  -s model.layers=32 -s model.hidden=16384 -s model.heads=128 -s model.kv_heads=128 -s model.ffn=65536 -s model.vocab=32768 -s model.sequence=131072 base.cfg
deep=$(ulimit -s 128 && "$program" --check -s pipeline.ranks=1 -s model.layers=1500 base.cfg 2>&1; echo $?)
[ "${deep##*
}" = 0 ] && passed=yes || passed=no
result "1,500 layers on a stack of 128 KiB" $passed
accepted "lists in either bracket" "" -s 'partition.layers=(4,0)' -s 'costs.forward=[1,2.5]' base.cfg
accepted "one value for all stages, no list" "" -s costs.forward=2 -s memory.recompute=full base.cfg
accepted "a list of one, of one stage" "" -s pipeline.ranks=1 -s costs.forward=[2] -s memory.recompute=[full] base.cfg
accepted "hexadecimal, long and signed integers" "" -s model.layers=0x4 -s optimizer.steps=+4LL base.cfg
accepted "what a family or a schedule does not use" "" -s pipeline.zero_bubble=true -s pipeline.schedule=gpipe \
  -s cluster.port=1024 -s model.tie_embeddings=true -s model.norm_epsilon=0 -s model.heads=7 mlp.cfg
accepted "a warm-up longer than the run earns a warning" \
  "-s optimizer.warmup_steps = 4: warning: longer than optimizer.steps = 3, which end at 0.75 of optimizer.learning_rate" \
  -s optimizer.warmup_steps=4 -s optimizer.decay=wsd -s optimizer.decay_steps=2 base.cfg
accepted "one as long does not" "" -s optimizer.warmup_steps=3 -s optimizer.decay=wsd base.cfg
accepted "threads on a CPU" "" -s cluster.threads_per_rank=2 base.cfg
refused "threads on a GPU" 78 "-s cluster.threads_per_rank = 2: 1, with cluster.device = \"cuda\"" -s cluster.threads_per_rank=2 \
  -s cluster.device=cuda base.cfg
accepted "rows that slow down products over bf16 on a GPU earn one" \
  "-s model.vocab = 257: warning: not a multiple of 8: bf16 matrix products of such rows are slower on a GPU" \
  -s model.vocab=257 -s model.dtype=bf16 -s cluster.device=cuda base.cfg
accepted "not over f32" "" -s model.vocab=257 -s cluster.device=cuda base.cfg
accepted "nor on a CPU" "" -s model.vocab=257 -s model.dtype=bf16 -s cluster.device=cpu base.cfg

# ---- former names ----
renamed='memory.spare_slots = 1: warning: the name of this setting is now memory.extra_receive_buffers'
accepted "a former name works, and prints a warning" "-s $renamed" -s memory.spare_slots=1 base.cfg
{ cat base.cfg && echo 'memory = { spare_slots = 1; };'; } >former.cfg
line=$(grep -n spare_slots former.cfg | cut -d: -f1)
accepted "in a file, too" "former.cfg:$line: $renamed" former.cfg
refuses 78 "-s $renamed
-s memory.extra_receive_buffers = 2: not together with memory.spare_slots, which is the same setting" -s memory.spare_slots=1 \
  -s memory.extra_receive_buffers=2 base.cfg
result "not together with the new name" $passed
{ cat base.cfg && printf 'memory = { extra_receive_buffers = 2;\n spare_slots = 1; };\n'; } >both.cfg
line=$(grep -n spare_slots both.cfg | cut -d: -f1)
refuses 78 "both.cfg:$line: memory.spare_slots = 1: not together with memory.extra_receive_buffers, which is the same setting" both.cfg
result "nor in a file" $passed
plan_digest() { "$program" --print=report "$@" base.cfg 2>err | grep '"digest"'; }
former_digest=$(plan_digest -s memory.spare_slots=1) new_digest=$(plan_digest -s memory.extra_receive_buffers=1)
same=no
[ -n "$new_digest" ] && [ "$former_digest" = "$new_digest" ] && same=yes
result "the digest is that of the new name" $same
renamed='tensor_parallel.partials = 2: warning: the name of this setting is now tensor_parallel.splits'
accepted "so does the former name of tensor_parallel.splits" "-s $renamed" -s tensor_parallel.partials=2 base.cfg
refuses 78 "-s $renamed
-s tensor_parallel.splits = 2: not together with tensor_parallel.partials, which is the same setting" -s tensor_parallel.partials=2 \
  -s tensor_parallel.splits=2 base.cfg
result "which is not given together with the new name" $passed

echo "1..$count"
