# runtime: what every penstock-NAME is linked with
libruntime_a_SOURCES += \
  %reldir%/main.c

include %D%/plan/local.mk
include %D%/base/local.mk
include %D%/library/local.mk
include %D%/data/local.mk
include %D%/storage/local.mk
include %D%/comm/local.mk
include %D%/observe/local.mk
include %D%/exec/local.mk
include %D%/device/local.mk
include %D%/control/local.mk
include %D%/rank/local.mk
include %D%/supervise/local.mk
include %D%/commands/local.mk
