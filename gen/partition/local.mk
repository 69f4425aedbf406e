# gen/partition: layers over stages and ranks
libgen_a_SOURCES += \
  %reldir%/balance.c \
  %reldir%/balance.h \
  %reldir%/block_cost.c \
  %reldir%/block_cost.h \
  %reldir%/partition.c \
  %reldir%/partition.h \
  %reldir%/puts.c \
  %reldir%/puts.h \
  %reldir%/training.c \
  %reldir%/training.h
