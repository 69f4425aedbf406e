# runtime/control: the commands of several hosts
libruntime_a_SOURCES += \
  %reldir%/control.h \
  %reldir%/control_accept.c \
  %reldir%/control_accept.h \
  %reldir%/control_connect.c \
  %reldir%/control_connect.h \
  %reldir%/control_link.c \
  %reldir%/control_link.h \
  %reldir%/control_sync.c \
  %reldir%/control_sync.h \
  %reldir%/control_tcp.c \
  %reldir%/control_tcp.h \
  %reldir%/failure_report.c \
  %reldir%/failure_report.h \
  %reldir%/handshake.c \
  %reldir%/handshake.h \
  %reldir%/listen_address.c \
  %reldir%/listen_address.h \
  %reldir%/local_ranks.c \
  %reldir%/local_ranks.h \
  %reldir%/lost_hosts.c \
  %reldir%/lost_hosts.h \
  %reldir%/membership.c \
  %reldir%/membership.h \
  %reldir%/mirror.c \
  %reldir%/mirror.h \
  %reldir%/redistribute.c \
  %reldir%/redistribute.h \
  %reldir%/rendezvous.c \
  %reldir%/rendezvous.h \
  %reldir%/secret.c \
  %reldir%/secret.h \
  %reldir%/start_state.c \
  %reldir%/start_state.h
