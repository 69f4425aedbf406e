# docs: shipped with the sources.
EXTRA_DIST += \
  NEWS \
  docs/complaints.md \
  docs/contracts.md \
  docs/design.md \
  docs/examples/experts.cfg \
  docs/examples/load.awk \
  docs/examples/penstock.sbatch \
  docs/examples/penstock.service \
  docs/examples/llama3_70b.cfg \
  docs/examples/llama3_70b_plan.cfg \
  docs/experts.md \
  docs/glossary.md \
  docs/guide.md \
  docs/library.md \
  docs/llama3_70b.md \
  docs/llama3_70b.png \
  docs/llama3_70b_plan.svg \
  docs/own-model.md \
  docs/recipes/README.md \
  docs/recipes/finetune/README.md \
  docs/recipes/finetune/chats.jsonl \
  docs/recipes/finetune/run \
  docs/recipes/finetune/small_model.py \
  docs/recipes/gpus/README.md \
  docs/recipes/gpus/cluster.cfg \
  docs/recipes/gpus/run \
  docs/recipes/pretrain/README.md \
  docs/recipes/pretrain/pretrain.cfg \
  docs/recipes/pretrain/run \
  docs/recipes/programs.sh \
  docs/recipes/slurm/README.md \
  docs/recipes/slurm/run \
  docs/recipes/slurm/slurm.cfg \
  docs/report.png \
  docs/tensorboard.png \
  docs/zero_bubble_v.svg
