# gen/families: the model families
libgen_a_SOURCES += \
  %reldir%/families.c \
  %reldir%/families.h \
  %reldir%/gemma3.c \
  %reldir%/gpt2.c \
  %reldir%/language.c \
  %reldir%/language.h \
  %reldir%/llama.c \
  %reldir%/mistral.c \
  %reldir%/mlp.c \
  %reldir%/qwen2.c \
  %reldir%/qwen3.c \
  %reldir%/rotary.c \
  %reldir%/rotary.h
