# gen: the generator
libgen_a_SOURCES += \
  %reldir%/choose_recompute.c \
  %reldir%/choose_recompute.h \
  %reldir%/generate.c \
  %reldir%/generate.h \
  %reldir%/given_actions.c \
  %reldir%/given_actions.h \
  %reldir%/measure_plans.c \
  %reldir%/measure_plans.h \
  %reldir%/options.c \
  %reldir%/options.def \
  %reldir%/options.h \
  %reldir%/output.c \
  %reldir%/output.h \
  %reldir%/pipeline.c \
  %reldir%/pipeline.h \
  %reldir%/plan_jointly.c \
  %reldir%/plan_jointly.h \
  %reldir%/search_effort.c \
  %reldir%/search_effort.h

penstock_gen_SOURCES = %reldir%/main.c
penstock_gen_LDFLAGS = $(AM_LDFLAGS) $(STATIC_LDFLAGS)
penstock_gen_LDADD = libgen.a $(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(NETTLE_LIBS) -lm

include %D%/base/local.mk
include %D%/topology/local.mk
include %D%/model/local.mk
include %D%/families/local.mk
include %D%/partition/local.mk
include %D%/schedule/local.mk
include %D%/timing/local.mk
include %D%/lower/local.mk
include %D%/layout/local.mk
include %D%/search/local.mk
include %D%/joint/local.mk
include %D%/verify/local.mk
include %D%/emit/local.mk
include %D%/views/local.mk
include %D%/planner/local.mk
