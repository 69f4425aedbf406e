# gen/timing: costs, simulation, lower bounds
libgen_a_SOURCES += \
  %reldir%/bound_terms.c \
  %reldir%/bound_terms.h \
  %reldir%/collective_bytes.c \
  %reldir%/collective_bytes.h \
  %reldir%/collective_cost.c \
  %reldir%/collective_cost.h \
  %reldir%/collective_kinds.def \
  %reldir%/collective_sums.c \
  %reldir%/collective_sums.h \
  %reldir%/collectives.c \
  %reldir%/collectives.h \
  %reldir%/cost.c \
  %reldir%/cost.h \
  %reldir%/cost_model.c \
  %reldir%/cost_model.h \
  %reldir%/costs_json.c \
  %reldir%/costs_json.h \
  %reldir%/critical_path.c \
  %reldir%/critical_path.h \
  %reldir%/lower_bound.c \
  %reldir%/lower_bound.h \
  %reldir%/measured_cost.c \
  %reldir%/measured_cost.h \
  %reldir%/measured_links.c \
  %reldir%/measured_links.h \
  %reldir%/memory_budget.c \
  %reldir%/memory_budget.h \
  %reldir%/replica_step.c \
  %reldir%/retiming.c \
  %reldir%/retiming.h \
  %reldir%/robustness.c \
  %reldir%/robustness.h \
  %reldir%/simulate.c \
  %reldir%/step_time.c \
  %reldir%/step_time.h \
  %reldir%/timing.h
