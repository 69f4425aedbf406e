# gen/model: op graphs of a stage, shapes, backward
libgen_a_SOURCES += \
  %reldir%/append.c \
  %reldir%/append.h \
  %reldir%/backward.c \
  %reldir%/backward.h \
  %reldir%/blocks.h \
  %reldir%/builder.c \
  %reldir%/builder.h \
  %reldir%/exchanges.c \
  %reldir%/exchanges.h \
  %reldir%/fused_loss.c \
  %reldir%/fused_loss.h \
  %reldir%/gradient_rules.c \
  %reldir%/gradient_rules.h \
  %reldir%/graph.c \
  %reldir%/graph.h \
  %reldir%/liveness.c \
  %reldir%/liveness.h \
  %reldir%/model.h \
  %reldir%/op_signature.c \
  %reldir%/op_signature.h \
  %reldir%/piece_head.c \
  %reldir%/piece_head.h \
  %reldir%/pieces.c \
  %reldir%/pieces.h \
  %reldir%/recompute.c \
  %reldir%/recompute.h \
  %reldir%/stage_io.c \
  %reldir%/stage_io.h \
  %reldir%/stage_programs.c \
  %reldir%/stages.h \
  %reldir%/tensor_shapes.c \
  %reldir%/tensor_shapes.h \
  %reldir%/unit_collectives.c \
  %reldir%/unit_collectives.h \
  %reldir%/units.c \
  %reldir%/units.h
