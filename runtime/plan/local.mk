# runtime/plan: the plan: the contract with gen/
libruntime_a_SOURCES += \
  %reldir%/actions.def \
  %reldir%/audit_sum.h \
  %reldir%/bases.def \
  %reldir%/choices.def \
  %reldir%/groups.def \
  %reldir%/groups.h \
  %reldir%/inputs.def \
  %reldir%/shares.def \
  %reldir%/puts.def \
  %reldir%/puts.h \
  %reldir%/memory_kinds.def \
  %reldir%/losses.h \
  %reldir%/memory_kinds.h \
  %reldir%/optimizer.def \
  %reldir%/plan.def \
  %reldir%/plan.h \
  %reldir%/rank_set.h \
  %reldir%/profiles.def \
  %reldir%/recompute.def \
  %reldir%/experts.h \
  %reldir%/shard.h \
  %reldir%/transports.def \
  %reldir%/transports.h
