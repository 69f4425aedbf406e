/* library.c: chooses between our attention and cuDNN's, which a program built --with-cudnn has. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda.h"

#ifdef PEN_CUDNN
#include "kernels/cuda/attention_cudnn.h"
static const struct pen_cuda_library *const built = &pen_cuda_cudnn;
#define ALLOWED "\"own\" or \"cudnn\""
#else
static const struct pen_cuda_library *const built = NULL;
#define ALLOWED "\"own\", in a program built without --with-cudnn"
#endif

static const struct pen_cuda_library *opened; /* null: our kernels run */

const char *pen_cuda_library_open(void) {
  static char line[320];
  const char *const asked = getenv("PEN_ATTENTION"), *why = "PEN_ATTENTION", *name = NULL;
  const int own = asked != NULL && strcmp(asked, "own") == 0,
            library = asked != NULL && built != NULL && strcmp(asked, "cudnn") == 0;
  if (asked != NULL && !own && !library) {
    snprintf(line, sizeof line, "PEN_ATTENTION = %.40s", asked);
    pen_cuda_note_text(line, ALLOWED);
  }
  opened = NULL;
  if (built == NULL || pen_cuda_error() != NULL) return "";
  if (!own) name = built->open(&why);
  if (name != NULL) opened = built;
  if (name == NULL && library) pen_cuda_note_text("PEN_ATTENTION = cudnn", why);
  snprintf(line, sizeof line, name != NULL ? "; attention: %s" : "; attention: own kernels (%s)",
           name != NULL ? name : why);
  return line;
}

const struct pen_cuda_library *pen_cuda_library_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  const int is_attention = kind == PEN_OP_ATTENTION || kind == PEN_OP_ATTENTION_DX;
  return is_attention && dtype == PEN_BF16 ? opened : NULL;
}
