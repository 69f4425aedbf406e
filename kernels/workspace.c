/* workspace.c: evaluates the workspace column of the devices' ops.def (see kernels.h). */
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

/* The index of a dim in a list of names. */
static int dim_index(const char *dims, const char *name, size_t length) {
  int index = 0;
  while (strncmp(dims, name, length) != 0 || (dims[length] != ' ' && dims[length] != '\0')) {
    dims += strcspn(dims, " ");
    if (*dims++ == '\0') abort(); /* ops.def uses a dim that the op does not have */
    index++;
  }
  return index;
}

/* One factor: a number, `bf16`, `f32`, `threads`, a dim, or the minimum of a dim and a number. */
static size_t factor(const char *dims, const char *text, enum pen_dtype dtype,
                     const int64_t dim[PEN_DIMS_MAX]) {
  const size_t length = strcspn(text, "<*+-");
  if (*text >= '0' && *text <= '9') return strtoul(text, NULL, 10);
  if (length == strlen("bf16") && strncmp(text, "bf16", length) == 0) return dtype != PEN_F32;
  if (length == strlen("f32") && strncmp(text, "f32", length) == 0) return dtype == PEN_F32;
  if (length == strlen("threads") && strncmp(text, "threads", length) == 0)
    return pen_threads_count();
  const size_t value = (size_t)dim[dim_index(dims, text, length)];
  const size_t most = text[length] == '<' ? strtoul(text + length + 1, NULL, 10) : value;
  return value < most ? value : most;
}

size_t pen_workspace_bytes(const char *formula, enum pen_op_kind kind, enum pen_dtype dtype,
                           const int64_t dim[PEN_DIMS_MAX]) {
  static const char *const dims[PEN_OP_COUNT] = {
#define PEN_OP(kind, dims, reals, signature, flops, meaning) [PEN_OP_##kind] = dims,
#include "kernels/ops.def"
  };
  size_t sum = 0, product = 1;
  if (formula == NULL) return 0;
  for (const char *text = formula;; text++) {
    product *= factor(dims[kind], text, dtype, dim);
    text += strcspn(text, "*+-");
    if (*text != '*') sum += product, product = *text == '-' ? -(size_t)1 : 1;
    if (*text == '\0') return sum;
  }
}
