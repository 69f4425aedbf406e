# gen/views: charts and reports of a plan
libgen_a_SOURCES += \
  %reldir%/chart.c \
  %reldir%/chart.h \
  %reldir%/chrome_trace.c \
  %reldir%/gantt_memory.c \
  %reldir%/gantt_memory.h \
  %reldir%/gantt_svg.c \
  %reldir%/gantt_text.c \
  %reldir%/live_ranges.c \
  %reldir%/live_ranges.h \
  %reldir%/memory_map.c \
  %reldir%/report_json.c \
  %reldir%/report_json.h \
  %reldir%/shapes_json.c \
  %reldir%/shapes_json.h \
  %reldir%/svg.c \
  %reldir%/svg.h \
  %reldir%/torch_comms.c \
  %reldir%/views.h
