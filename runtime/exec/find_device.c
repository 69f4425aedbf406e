/* find_device.c: which devices this binary was linked with (see find_device.h). */
#include "runtime/exec/find_device.h"

#include "runtime/plan/plan.h"

/* A binary of the CPU has no trace of CUDA: the name stays null unless the link asks for it
 * (Makefile.am, CUDA_LINK). */
extern const struct pen_device pen_cuda __attribute__((weak));

const struct pen_device *pen_device_find(int kind) {
  const struct pen_device *const devices[PEN_DEVICES] = {
      [PEN_DEVICE_CPU] = &pen_cpu, [PEN_DEVICE_CUDA] = &pen_cuda};
  return devices[kind];
}
