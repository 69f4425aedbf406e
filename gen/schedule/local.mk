# gen/schedule: compute orders
libgen_a_SOURCES += \
  %reldir%/backward_order.c \
  %reldir%/backward_order.h \
  %reldir%/1f1b.c \
  %reldir%/action_text.c \
  %reldir%/action_text.h \
  %reldir%/building_block.c \
  %reldir%/compose.c \
  %reldir%/dual_pipe_v.c \
  %reldir%/gpipe.c \
  %reldir%/inference.c \
  %reldir%/internal.h \
  %reldir%/list.c \
  %reldir%/order.h \
  %reldir%/looped_bfs.c \
  %reldir%/schedule.h \
  %reldir%/torch_csv.c \
  %reldir%/torch_csv.h \
  %reldir%/v_half.c \
  %reldir%/v_min.c \
  %reldir%/zero_bubble_v.c
