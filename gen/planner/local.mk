# gen/planner: penstock-plan
bin_PROGRAMS += penstock-plan
penstock_plan_SOURCES = \
  %reldir%/attempts.c \
  %reldir%/attempts.h \
  %reldir%/axes.c \
  %reldir%/axes.def \
  %reldir%/axes.h \
  %reldir%/best_first.c \
  %reldir%/best_first.h \
  %reldir%/bounds.c \
  %reldir%/bounds.h \
  %reldir%/candidates.c \
  %reldir%/candidates.h \
  %reldir%/cut.c \
  %reldir%/cut.h \
  %reldir%/cuts.c \
  %reldir%/cuts.h \
  %reldir%/equal_time.h \
  %reldir%/internal.h \
  %reldir%/main.c \
  %reldir%/options.c \
  %reldir%/options.def \
  %reldir%/options.h \
  %reldir%/planner.h \
  %reldir%/print_json.c \
  %reldir%/print_svg.c \
  %reldir%/print_table.c \
  %reldir%/progress.c \
  %reldir%/progress.h \
  %reldir%/reason.c \
  %reldir%/reason.h \
  %reldir%/refine.c \
  %reldir%/refine.h \
  %reldir%/trial.c \
  %reldir%/trial.h \
  %reldir%/write_topology.c \
  %reldir%/write_topology.h
penstock_plan_CFLAGS = $(libgen_a_CFLAGS)
penstock_plan_LDADD = $(penstock_gen_LDADD)
