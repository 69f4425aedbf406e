# gen/search: searches for an order
libgen_a_SOURCES += \
  %reldir%/anneal.c \
  %reldir%/anneal.h \
  %reldir%/annealer.c \
  %reldir%/annealer.h \
  %reldir%/budget_bytes.c \
  %reldir%/budget_bytes.h \
  %reldir%/list_schedule.c \
  %reldir%/list_schedule.h \
  %reldir%/order_spreads.c \
  %reldir%/order_spreads.h \
  %reldir%/percentile.c \
  %reldir%/percentile.h \
  %reldir%/problem.c \
  %reldir%/problem.h \
  %reldir%/progress.c \
  %reldir%/progress.h \
  %reldir%/search.c \
  %reldir%/search.h \
  %reldir%/search_pass.c \
  %reldir%/search_pass.h \
  %reldir%/seeds.c \
  %reldir%/seeds.h \
  %reldir%/side.c \
  %reldir%/side.h \
  %reldir%/timeline.c \
  %reldir%/timeline.h
