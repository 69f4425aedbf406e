# gen: the generator
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
include %D%/pipeline/local.mk
include %D%/planner/local.mk
