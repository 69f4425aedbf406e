# gen/model: op graphs of a stage, shapes, backward
libgen_a_SOURCES += \
  %reldir%/backward.c \
  %reldir%/builder.c \
  %reldir%/fused_loss.c \
  %reldir%/fused_loss.h \
  %reldir%/graph.h \
  %reldir%/op_signature.c \
  %reldir%/op_signature.h \
  %reldir%/recompute.c \
  %reldir%/recompute.h \
  %reldir%/stages.h \
  %reldir%/tensor_shapes.c \
  %reldir%/tensor_shapes.h
