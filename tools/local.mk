# tools: programs beside the deployed binary
penstock_convert_SOURCES = \
  %reldir%/convert/convert.c \
  %reldir%/convert/convert.h \
  %reldir%/convert/keys.def \
  %reldir%/convert/message.c \
  %reldir%/convert/options.def \
  %reldir%/convert/read_config.c
penstock_convert_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
penstock_convert_LDADD = libgen.a $(LIBCONFIG_LIBS) $(JANSSON_LIBS) $(NETTLE_LIBS) -lm
penstock_tokens_SOURCES = \
  %reldir%/tokens/documents.c \
  %reldir%/tokens/fail.c \
  %reldir%/tokens/lines.c \
  %reldir%/tokens/mask.c \
  %reldir%/tokens/options.def \
  %reldir%/tokens/pack.c \
  %reldir%/tokens/progress.c \
  %reldir%/tokens/read.c \
  %reldir%/tokens/tokens.c \
  %reldir%/tokens/tokens.h \
  %reldir%/tokens/write.c
penstock_tokens_CFLAGS = $(AM_CFLAGS) $(JANSSON_CFLAGS)
penstock_tokens_LDADD = libruntime.a $(JANSSON_LIBS)
dist_bin_SCRIPTS = %reldir%/penstock-launch
EXTRA_DIST += %reldir%/bundle.sh %reldir%/deb.sh %reldir%/demo.sh %reldir%/tokens/tokens_hf.py %reldir%/tokens_hf.py

include %D%/bench/local.mk
