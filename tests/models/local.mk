# tests/models: descriptions of models (model.description)
EXTRA_DIST += \
  %reldir%/bert.json \
  %reldir%/digits.json \
  %reldir%/dots1.json \
  %reldir%/gemma2.json \
  %reldir%/gemma3.json \
  %reldir%/gpt2.json \
  %reldir%/grpo.json \
  %reldir%/grpo_small.json \
  %reldir%/llama.json \
  %reldir%/losses.json \
  %reldir%/losses.txt \
  %reldir%/mixtral.json \
  %reldir%/nano.json \
  %reldir%/odd.json \
  %reldir%/olmo2.json \
  %reldir%/parts.json \
  %reldir%/pointwise.json \
  %reldir%/policy.json \
  %reldir%/qwen3_moe.json \
  %reldir%/readers.json \
  %reldir%/wide.json
