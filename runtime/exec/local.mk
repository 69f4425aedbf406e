# runtime/exec: binds and runs actions
libruntime_a_SOURCES += \
  %reldir%/audit.c \
  %reldir%/audit.h \
  %reldir%/audit_draw.c \
  %reldir%/audit_draw.h \
  %reldir%/audit_report.c \
  %reldir%/audit_report.h \
  %reldir%/audit_update.c \
  %reldir%/audit_update.h \
  %reldir%/bind.c \
  %reldir%/call.c \
  %reldir%/collectives.c \
  %reldir%/collectives.h \
  %reldir%/exec.h \
  %reldir%/find_device.c \
  %reldir%/find_device.h \
  %reldir%/handlers.c \
  %reldir%/host_executor.c \
  %reldir%/matrices.c \
  %reldir%/matrices.h \
  %reldir%/op_hook.c \
  %reldir%/op_hook.h \
  %reldir%/operands.c \
  %reldir%/operands.h \
  %reldir%/optimizer_step.c \
  %reldir%/optimizer_step.h \
  %reldir%/route_guard.c \
  %reldir%/route_guard.h \
  %reldir%/send_hazards.c \
  %reldir%/send_hazards.h \
  %reldir%/tensor_sum.c \
  %reldir%/tensor_sum.h \
  %reldir%/weight_arrays.c \
  %reldir%/weight_arrays.h
