# runtime/rank: what one rank does
libruntime_a_SOURCES += \
  %reldir%/agreement.c \
  %reldir%/agreement.h \
  %reldir%/evaluate.c \
  %reldir%/evaluate.h \
  %reldir%/rank.h \
  %reldir%/rank_main.c \
  %reldir%/rank_open.c \
  %reldir%/rank_open.h \
  %reldir%/request_save.c \
  %reldir%/request_save.h \
  %reldir%/requests.c \
  %reldir%/requests.h \
  %reldir%/run.h \
  %reldir%/samples.c \
  %reldir%/samples.h \
  %reldir%/save.c \
  %reldir%/save.h \
  %reldir%/saving.c \
  %reldir%/saving.h \
  %reldir%/snapshot.c \
  %reldir%/snapshot.h \
  %reldir%/weight_values.c \
  %reldir%/weight_values.h 


