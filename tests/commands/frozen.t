#!/bin/sh
# frozen.t: a checkpoint continues when other tensors are frozen: the moments of newly trained tensors start at zero, and so do the updates by
# which AdamW corrects their bias; those of newly frozen ones are dropped; and both are said. Moments that are missing for another reason are still
# an error.
. "${top_srcdir:-.}/tests/support/lib.sh"

cat >"$scratch/model.cfg" <<'END'
model = { family = "llama"; layers = 2; hidden = 32; heads = 2; ffn = 48; vocab = 256; sequence = 16; };
batch = { microbatch = 2; };
optimizer = { learning_rate = 1e-2; steps = 8; };
pipeline = { ranks = 2; microbatches = 4; schedule = "1f1b"; };
END
cd "$scratch" || exit 99
make_tokens data.bin 20000
frozen='model.frozen=[embed_tokens.weight,layers.0.mlp.up_proj.weight]'
ok "a plan that trains all" build whole model.cfg
ok "one with two frozen tensors" build part model.cfg -s "$frozen"
ok "one that shards moments" build sharded model.cfg -s pipeline.ranks=1 -s data_parallel.replicas=2 -s data_parallel.shard=optimizer \
  -s pipeline.microbatches=2
ok "one of another number of ranks" build one model.cfg -s pipeline.ranks=1
# run NAME STEPS FOLDER: resumes up to a step
run() {
  "./$1" train --data data.bin --seed 3 --quiet --checkpoint "$3" --resume --steps "$2" 2>err
}
names() { # FOLDER: the tensors with moments
  head -c 20000 "$1/latest/optimizer.safetensors" | grep -ao '"model[a-z0-9_.]*exp_avg"' | sort
}

ok "train with two frozen" run part 3 thawed
is "they have no moments" "$(names thawed | grep -c 'embed_tokens\|layers.0.mlp.up_proj')" 0
cp -a thawed thawed_sharded
cp -a thawed thawed_one
cp -a thawed torn
ok "continue with all trained" run whole 5 thawed
matches "which is said" "$(complaints err)" "penstock: thawed/step-00000003: 2 tensors were frozen and are trained now: their moments start at zero"
is "they have moments" "$(names thawed | grep -c 'embed_tokens\|layers.0.mlp.up_proj')" 2
cp -a thawed old
ok "they are updated for the third time" run whole 6 thawed
ok "which AdamW corrects, and the manifest counts" updates_are thawed/step-00000005 thawed/latest 0.01 6 embed_tokens.weight=3 \
  layers.0.mlp.up_proj.weight=3
ok "other ranks continue it to the same weights" run one 6 thawed_one
ok "the same weights" cmp thawed/latest/model.safetensors thawed_one/latest/model.safetensors
ok "and moments" cmp thawed/latest/optimizer.safetensors thawed_one/latest/optimizer.safetensors
ok "and updates" cmp thawed/latest/manifest.json thawed_one/latest/manifest.json
ok "so does a plan whose moments are sharded" run sharded 4 thawed_sharded
matches "which says so once" "$(complaints err)" "penstock: thawed_sharded/step-00000003: 2 tensors were frozen *zero"
is "with all moments" "$(names thawed_sharded)" "$(names thawed)"
ok "which updates them once more" run sharded 5 thawed_sharded
ok "with all counted" updates_are thawed_sharded/step-00000004 thawed_sharded/latest 0.01 5 embed_tokens.weight=2 layers.0.mlp.up_proj.weight=2

# What the manifest says counts; one of an older version says nothing, and each step was an update of all.
manifest=old/latest/manifest.json
cp $manifest saved
sed -i 's/"model.norm.weight": 5/"model.norm.weight": 4/' $manifest
run whole 6 old
is "a count that was changed: status" $? 65
matches "a count that was changed: message" "$(complaints err)" "penstock: *manifest.json: updates_checksum does not fit updates: the file was damaged"
for count in 6 -1 '"5"'; do
  sed "/updates_checksum/d; s/\"model.norm.weight\": 5/\"model.norm.weight\": $count/" saved >$manifest
  run whole 6 old
  is "a count of $count: status" $? 65
  matches "a count of $count: message" "$(complaints err)" "penstock: *manifest.json: updates: model.norm.weight: must be a whole number, at most step = 5"
done
sed '/"updates": {/,/}/d' saved >$manifest
ok "without counts it continues" run whole 6 old
ok "with those of all steps" updates_are old/step-00000005 old/latest 0.01 6

# The numbers of updates outlive ranks in memory.
cp -a torn lost
ok "all trained, further" run whole 400 torn
./whole train --data data.bin --seed 3 --quiet --checkpoint lost --resume --steps 400 --restarts 1 --recover-every 1 --log lost.log 2>err &
whole=$!
await_steps lost.log 10
kill -KILL "$(children $whole | sed -n 2p)"
wait $whole
is "the same with a rank that is lost" "$? $(grep -c '"source":"memory"' lost.log)" "0 1"
for file in model.safetensors optimizer.safetensors manifest.json; do
  ok "to the same $file" cmp torn/latest/$file lost/latest/$file
done

ok "train all from the start" run whole 3 cooled
ok "continue with two frozen" run part 6 cooled
matches "which is said" "$(complaints err)" "penstock: cooled/step-00000003: 2 tensors were trained and are frozen now: their moments are dropped"
is "they have none now" "$(names cooled | grep -c 'embed_tokens\|layers.0.mlp.up_proj')" 0
ok "continued again as it is" run part 8 cooled
is "nothing is said" "$(complaints err)" ""
ok "thawed" run whole 9 cooled
ok "and updated again" run whole 10 cooled
ok "their updates begin anew" updates_are cooled/step-00000009 cooled/latest 0.01 10 embed_tokens.weight=2 layers.0.mlp.up_proj.weight=2

# A file of moments of another checkpoint: the manifest lists moments that it lacks.
ok "train all elsewhere" run whole 3 other
cp thawed_one/step-00000003/optimizer.safetensors other/step-00000003/optimizer.safetensors
run whole 6 other
is "moments that are lost: status" $? 65
matches "moments that are lost: message" "$(complaints err)" "*optimizer.safetensors: tensor model.embed_tokens.weight.exp_avg*"
sed -i 's/^.*embed_tokens.weight.exp_avg_sq.*$//' other/step-00000003/manifest.json
run whole 6 other
is "a checksum that is lost, too: status" $? 65
matches "a checksum that is lost, too: message" "$(complaints err)" "*tensor model.embed_tokens.weight.exp_avg*"
finish
