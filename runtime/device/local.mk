# runtime/device: steps on an asynchronous device
libruntime_a_SOURCES += \
  %reldir%/device.h \
  %reldir%/device_error.c \
  %reldir%/device_error.h \
  %reldir%/graph.c \
  %reldir%/graph.h \
  %reldir%/progress.c \
  %reldir%/progress.h \
  %reldir%/stream_executor.c \
  %reldir%/stream_executor.h \
  %reldir%/stream_state.c \
  %reldir%/stream_state.h
