# ---- manuals, made from the tables that the parsers read, and part of the tarball ----
noinst_PROGRAMS += manual
manual_SOURCES = tools/manual.c
manual_LDADD = $(penstock_gen_LDADD)
dist_man_MANS = \
  %D%/penstock-build.1 \
  %D%/penstock-chat.1 \
  %D%/penstock-convert.1 \
  %D%/penstock-families.7 \
  %D%/penstock-gen.1 \
  %D%/penstock-import.1 \
  %D%/penstock-launch.1 \
  %D%/penstock-log.1 \
  %D%/penstock-plan.1 \
  %D%/penstock-report.1 \
  %D%/penstock-schedules.7 \
  %D%/penstock-tokens.1 \
  %D%/penstock.1 \
  %D%/penstock.cfg.5
EXTRA_DIST += $(dist_man_MANS:=.in)
MAINTAINERCLEANFILES = $(dist_man_MANS)

# The program is an order-only prerequisite: it is always newer than a manual of the tarball, which is up to date nevertheless.
MANUAL_TABLES = \
  gen/base/version.h \
  gen/pipeline/options.def \
  gen/planner/options.def \
  gen/timing/collective_kinds.def \
  gen/topology/families.def \
  gen/topology/schedules.def \
  gen/topology/settings.def \
  runtime/base/options.def \
  runtime/plan/memory_kinds.def \
  tools/convert/options.def \
  tools/manual.c \
  tools/tokens/options.def
$(dist_man_MANS): %D%/%: %D%/%.in $(MANUAL_TABLES) | manual$(EXEEXT)
	$(AM_V_GEN)$(MKDIR_P) %D% && ./manual$(EXEEXT) $< >$@.new && mv -f $@.new $@
