# runtime/library: what libpenstock-NAME.so has (make lib TOPOLOGY=NAME)
noinst_LIBRARIES += libclient.a
libclient_a_SOURCES = \
  %reldir%/generate.c \
  %reldir%/internal.h \
  %reldir%/penstock.c \
  %reldir%/penstock.h \
  %reldir%/samples.c \
  %reldir%/start.c \
  base/message.c \
  base/standard_error.c \
  runtime/base/futex_counter.c \
  runtime/base/input_text.c \
  runtime/base/stored_dtypes.c
libclient_a_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden

# The object that names the library in a program: pen_library_NAME.
plan/%.library.c: FORCE
	@$(MKDIR_P) plan
	@printf '%s\n' '#include "runtime/library/penstock.h"' \
	  'extern PEN_API const struct pen_library pen_library_$(LIBRARY_WORD);' \
	  'const struct pen_library pen_library_$(LIBRARY_WORD) = {"$*"};' >$@.new
	@if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi
LIBRARY_WORD = $(shell printf '%s' '$(PLAN_NAME)' | tr -c 'A-Za-z0-9' '_')

libpenstock-$(PLAN_NAME).so: plan/$(PLAN_NAME).library.c libclient.a
	$(AM_V_CCLD)$(COMPILE_PLAIN) -fPIC -fvisibility=hidden -shared -Wl,-Bsymbolic -Wl,-z,defs $(LDFLAGS) -o $@ plan/$(PLAN_NAME).library.c \
	  -Wl,--whole-archive libclient.a -Wl,--no-whole-archive -ldl

penstock.h: runtime/library/penstock.h
	$(AM_V_GEN)cp '$(srcdir)/runtime/library/penstock.h' $@

lib: $(call if_topology,penstock-$(PLAN_NAME)$(EXEEXT) libpenstock-$(PLAN_NAME).so) penstock.h
	$(if $(TOPOLOGY),,$(error make lib TOPOLOGY=...: say which plan))
.PHONY: lib
CLEANFILES += penstock.h
