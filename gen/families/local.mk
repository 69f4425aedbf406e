# gen/families: the model families
libgen_a_SOURCES += \
  %reldir%/described.c \
  %reldir%/described.h \
  %reldir%/described_f32.c \
  %reldir%/described_f32.h \
  %reldir%/described_inputs.c \
  %reldir%/described_inputs.h \
  %reldir%/described_kind.c \
  %reldir%/described_kind.h \
  %reldir%/described_operands.c \
  %reldir%/described_operands.h \
  %reldir%/described_ops.c \
  %reldir%/described_ops.h \
  %reldir%/described_pointwise.c \
  %reldir%/described_pointwise.h \
  %reldir%/described_shapes.c \
  %reldir%/described_shapes.h \
  %reldir%/families.c \
  %reldir%/families.h \
  %reldir%/dots1.c \
  %reldir%/gemma3.c \
  %reldir%/gpt2.c \
  %reldir%/language.c \
  %reldir%/language.h \
  %reldir%/llama.c \
  %reldir%/mistral.c \
  %reldir%/mixtral.c \
  %reldir%/mlp.c \
  %reldir%/moe.c \
  %reldir%/moe.h \
  %reldir%/qwen2.c \
  %reldir%/qwen3.c \
  %reldir%/qwen3_moe.c \
  %reldir%/rotary.c \
  %reldir%/rotary.h
