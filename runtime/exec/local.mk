# runtime/exec: binds and runs actions
libruntime_a_SOURCES += \
  %reldir%/bind.c \
  %reldir%/find_device.c \
  %reldir%/find_device.h \
  %reldir%/handlers.c \
  %reldir%/op_hook.c \
  %reldir%/op_hook.h \
  %reldir%/optimizer_step.c \
  %reldir%/optimizer_step.h \
  %reldir%/replicas.c \
  %reldir%/replicas.h \
  %reldir%/vm.c \
  %reldir%/vm.h
