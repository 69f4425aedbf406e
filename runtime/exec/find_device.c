/* find_device.c: which devices this binary was linked with (see find_device.h). */
#include "runtime/exec/find_device.h"

#include <string.h>

/* A binary of the CPU has no trace of CUDA: the name stays null unless the link asks for it
 * (Makefile.am, CUDA_LINK). */
extern const struct pen_device pen_cuda __attribute__((weak));

const struct pen_device *pen_device_find(const char *name) {
  if (strcmp(name, "cuda") == 0) {
    return &pen_cuda;
  }
  return strcmp(name, "cpu") == 0 ? &pen_cpu : NULL;
}
