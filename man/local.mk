# ---- manuals, made from the tables that the parsers read ----
noinst_PROGRAMS += manual
manual_SOURCES = tools/manual.c
manual_LDADD = $(penstock_gen_LDADD)
man_MANS = man/penstock-gen.1 man/penstock.1 man/penstock-tokens.1 man/penstock-convert.1 man/penstock.cfg.5 man/penstock-schedules.7 man/penstock-families.7
MANUAL_TEMPLATES = man/penstock-gen.1.in man/penstock.1.in man/penstock-tokens.1.in man/penstock-convert.1.in man/penstock.cfg.5.in man/penstock-schedules.7.in man/penstock-families.7.in
CLEANFILES += $(man_MANS)

$(man_MANS): manual$(EXEEXT)
$(man_MANS): man/%: man/%.in
	$(AM_V_GEN)$(MKDIR_P) man && ./manual$(EXEEXT) $< >$@.new && mv -f $@.new $@

EXTRA_DIST += $(MANUAL_TEMPLATES)
