/* library.c: chooses between our attention and cuDNN's, which a program built --with-cudnn has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#ifdef PEN_CUDNN
#include "kernels/cuda/attention_cudnn.h"
static const struct pen_cuda_library *const built = &pen_cuda_cudnn;
#else
static const struct pen_cuda_library *const built = NULL;
#endif

static const struct pen_cuda_library *opened; /* null: our kernels run */

const char *pen_cuda_library_open(void) {
  static char line[320];
  const char *const asked = getenv("PEN_ATTENTION"), *why = "PEN_ATTENTION", *name = NULL;
  if (built == NULL) return "";
  if (asked == NULL || strcmp(asked, "own") != 0) name = built->open(&why);
  opened = name == NULL ? NULL : built;
  snprintf(line, sizeof line, name == NULL ? "; attention: own kernels (%s)" : "; attention: %s",
           name == NULL ? why : name);
  return line;
}

const struct pen_cuda_library *pen_cuda_library_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  return opened != NULL && dtype == PEN_BF16 && opened->takes_op(kind) ? opened : NULL;
}
