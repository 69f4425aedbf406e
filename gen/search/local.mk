# gen/search: searches for an order
libgen_a_SOURCES += \
  %reldir%/anneal.c \
  %reldir%/list_schedule.c \
  %reldir%/problem.c \
  %reldir%/search.c \
  %reldir%/search.h \
  %reldir%/search_pass.c \
  %reldir%/search_pass.h \
  %reldir%/seeds.c \
  %reldir%/seeds.h \
  %reldir%/timeline.c
