# tools: programs beside the deployed binary
penstock_convert_SOURCES = \
  %reldir%/convert/convert.c \
  %reldir%/convert/convert.h \
  %reldir%/convert/export.c \
  %reldir%/convert/export.h \
  %reldir%/convert/message.c \
  %reldir%/convert/options.def 

penstock_convert_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
penstock_convert_LDADD = libgen.a libruntime.a $(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(NETTLE_LIBS) -lm
penstock_tokens_SOURCES = \
  %reldir%/tokens/documents.c \
  %reldir%/tokens/fail.c \
  %reldir%/tokens/lines.c \
  %reldir%/tokens/mask.c \
  %reldir%/tokens/options.def \
  %reldir%/tokens/pack.c \
  %reldir%/tokens/progress.c \
  %reldir%/tokens/read.c \
  %reldir%/tokens/source.c \
  %reldir%/tokens/tokens.c \
  %reldir%/tokens/tokens.h \
  %reldir%/tokens/write.c
penstock_tokens_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS) $(COMPRESSION_CFLAGS)
penstock_tokens_LDADD = libruntime.a $(JANSSON_LIBS) $(COMPRESSION_LIBS)
dist_bin_SCRIPTS = %reldir%/penstock-launch
# penstock-build makes deployments with what is installed: the archives, and the headers that plans include.
bin_SCRIPTS = penstock-build
INSTALLED_ARCHIVES = libruntime.a libclient.a libkernels.a $(VECTOR_ARCHIVES) $(DEVICE_ARCHIVES) $(NCCL_ARCHIVES) $(OFI_ARCHIVES)
BUILD_VARIABLES = pkglibdir pkgincludedir abs_top_srcdir VERSION CC CUDA_LIBS OFI_LIBS NCCL_LIBS KERNEL_ARCHIVES PEN_CFLAGS CFLAGS HARDENING_LDFLAGS LDFLAGS RUNTIME_LIBS
nobase_pkginclude_HEADERS = \
  kernels/ops.def \
  kernels/ops.h \
  kernels/steps.def \
  runtime/library/penstock.h \
  runtime/plan/actions.def \
  runtime/plan/bases.def \
  runtime/plan/choices.def \
  runtime/plan/groups.def \
  runtime/plan/groups.h \
  runtime/plan/inputs.def \
  runtime/plan/puts.def \
  runtime/plan/optimizer.def \
  runtime/plan/plan.def \
  runtime/plan/plan.h \
  runtime/plan/profiles.def \
  runtime/plan/recompute.def \
  runtime/plan/shares.def \
  runtime/plan/transports.def \
  runtime/plan/transports.h
# What programs with a library use.
include_HEADERS = runtime/library/penstock.h
pkgdata_pythondir = $(pkgdatadir)/python
dist_pkgdata_python_DATA = %reldir%/python/penstock.py
penstock-build: $(srcdir)/%reldir%/penstock-build.in Makefile
	$(AM_V_GEN)sed $(foreach v,$(BUILD_VARIABLES),-e 's|@$(v)@|$($(v))|g') $(srcdir)/%reldir%/penstock-build.in >$@.new && chmod +x $@.new && mv -f $@.new $@
CLEANFILES += penstock-build
install-data-local:
	$(MKDIR_P) '$(DESTDIR)$(pkglibdir)' && $(INSTALL_DATA) $(INSTALLED_ARCHIVES) '$(DESTDIR)$(pkglibdir)'
EXTRA_DIST += %reldir%/penstock-build.in
EXTRA_DIST += %reldir%/bundle.sh %reldir%/deb.sh %reldir%/demo.sh %reldir%/tokens/inputs.py %reldir%/tokens/tokens_hf.py %reldir%/tokens_hf.py

# What the commands in Python share.
COMMAND_LINE_FILES = %reldir%/report/command_line.py %reldir%/report/failure.py
# penstock-report is one file that Python runs: an archive of these.
REPORT_FILES = \
  $(COMMAND_LINE_FILES) \
  %reldir%/report/__main__.py \
  %reldir%/report/command.py \
  %reldir%/report/compare.py \
  %reldir%/report/curves.py \
  %reldir%/report/memory.py \
  %reldir%/report/page.py \
  %reldir%/report/read_log.py \
  %reldir%/report/read_trace.py \
  %reldir%/report/reading.py \
  %reldir%/report/step_chart.py \
  %reldir%/report/svg.py
EXTRA_DIST += $(REPORT_FILES) %reldir%/report/pack.py
# penstock-log shares the reader of logs.
LOG_FILES = \
  %reldir%/log/__main__.py \
  %reldir%/log/command.py \
  %reldir%/log/follow.py \
  %reldir%/log/records.py \
  %reldir%/log/to_tensorboard.py \
  %reldir%/log/to_wandb.py
LOG_SHARED_FILES = \
  $(COMMAND_LINE_FILES) \
  %reldir%/report/read_log.py \
  %reldir%/report/reading.py
EXTRA_DIST += $(LOG_FILES)
CHAT_FILES = \
  %reldir%/tokens/chat/__main__.py \
  %reldir%/tokens/chat/command.py \
  %reldir%/tokens/chat/generation.py \
  %reldir%/tokens/chat/text.py
EXTRA_DIST += $(CHAT_FILES)
IMPORT_FILES = \
  %reldir%/import/__main__.py \
  %reldir%/import/attention.py \
  %reldir%/import/check.py \
  %reldir%/import/command.py \
  %reldir%/import/constants.py \
  %reldir%/import/describe.py \
  %reldir%/import/elementwise.py \
  %reldir%/import/experts.py \
  %reldir%/import/formulas.py \
  %reldir%/import/fuse.py \
  %reldir%/import/graph.py \
  %reldir%/import/inputs.py \
  %reldir%/import/losses.py \
  %reldir%/import/hf.py \
  %reldir%/import/importer.py \
  %reldir%/import/layout.py \
  %reldir%/import/match.py \
  %reldir%/import/module.py \
  %reldir%/import/ops.py \
  %reldir%/import/parts.py \
  %reldir%/import/passes.py \
  %reldir%/import/patterns.py \
  %reldir%/import/program.py \
  %reldir%/import/refusal.py \
  %reldir%/import/rewrite.py \
  %reldir%/import/scaling.py \
  %reldir%/import/steps.py \
  %reldir%/import/tables.py \
  %reldir%/import/units.py \
  %reldir%/import/views.py \
  %reldir%/import/write.py \
  gen/model/described.def
EXTRA_DIST += $(IMPORT_FILES)
if PYTHON_FOUND
bin_SCRIPTS += penstock-report penstock-log penstock-chat penstock-import
endif
penstock-chat: $(CHAT_FILES) $(COMMAND_LINE_FILES) %reldir%/report/pack.py
	$(AM_V_GEN)$(PYTHON) -B $(srcdir)/%reldir%/report/pack.py $@ $(PACKAGE_VERSION) $(addprefix $(srcdir)/,$(CHAT_FILES) $(COMMAND_LINE_FILES))
penstock-import: $(IMPORT_FILES) $(COMMAND_LINE_FILES) %reldir%/report/pack.py
	$(AM_V_GEN)$(PYTHON) -B $(srcdir)/%reldir%/report/pack.py $@ $(PACKAGE_VERSION) $(addprefix $(srcdir)/,$(IMPORT_FILES) $(COMMAND_LINE_FILES))
penstock-log: $(LOG_FILES) $(LOG_SHARED_FILES) %reldir%/report/pack.py
	$(AM_V_GEN)$(PYTHON) -B $(srcdir)/%reldir%/report/pack.py $@ $(PACKAGE_VERSION) $(addprefix $(srcdir)/,$(LOG_FILES) $(LOG_SHARED_FILES))
penstock-report: $(REPORT_FILES) %reldir%/report/pack.py
	$(AM_V_GEN)$(PYTHON) -B $(srcdir)/%reldir%/report/pack.py $@ $(PACKAGE_VERSION) $(addprefix $(srcdir)/,$(REPORT_FILES))

# bash loads a completion by the name of the program: the others are links to the first.
bashcompletiondir = $(datadir)/bash-completion/completions
bashcompletion_DATA = penstock-gen.bash
COMPLETED = build chat convert import launch log plan report tokens
penstock-gen.bash: $(srcdir)/%reldir%/completion.bash.in $(MANUAL_TABLES) | manual$(EXEEXT)
	$(AM_V_GEN)./manual$(EXEEXT) $(srcdir)/%reldir%/completion.bash.in >$@.new && mv -f $@.new $@
install-data-hook:
	cd '$(DESTDIR)$(bashcompletiondir)' && mv -f penstock-gen.bash penstock-gen && for name in $(COMPLETED); do ln -sf penstock-gen penstock-$$name; done
uninstall-hook:
	cd '$(DESTDIR)$(bashcompletiondir)' && rm -f penstock-gen $(addprefix penstock-,$(COMPLETED))
CLEANFILES += penstock-gen.bash
EXTRA_DIST += %reldir%/completion.bash.in

include %D%/bench/local.mk
