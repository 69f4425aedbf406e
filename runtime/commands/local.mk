# runtime/commands: train, eval, score, generate, info
libruntime_a_SOURCES += \
  %reldir%/block_times.c \
  %reldir%/block_times.h \
  %reldir%/commands.h \
  %reldir%/exchange_times.c \
  %reldir%/exchange_times.h \
  %reldir%/files.c \
  %reldir%/files.h \
  %reldir%/forward.c \
  %reldir%/generate.c \
  %reldir%/generate.h \
  %reldir%/generation_step.c \
  %reldir%/generation_step.h \
  %reldir%/info.c \
  %reldir%/info.h \
  %reldir%/logits.h \
  %reldir%/measure_costs.c \
  %reldir%/measure_costs.h \
  %reldir%/message_times.c \
  %reldir%/message_times.h \
  %reldir%/prompts.c \
  %reldir%/prompts.h \
  %reldir%/sample.c \
  %reldir%/sample.h \
  %reldir%/score.c \
  %reldir%/score.h \
  %reldir%/score_logits.c \
  %reldir%/score_logits.h \
  %reldir%/score_rows.c \
  %reldir%/score_rows.h \
  %reldir%/setup.c \
  %reldir%/setup.h \
  %reldir%/texts.c \
  %reldir%/texts.h \
  %reldir%/timed_ranks.c \
  %reldir%/timed_ranks.h \
  %reldir%/train.c
