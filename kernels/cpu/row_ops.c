/* row_ops.c: divides calls of ops by rows (see row_ops.h). */
#include "kernels/cpu/row_ops.h"

#include <string.h>

#include "kernels/cpu/threads.h"

struct divided_call {
  const struct pen_call *call;
  const char *operands;
  pen_kernel *kernel;
  size_t width, element_bytes;
};

static size_t row_bytes(const struct divided_call *d, char operand) {
  switch (operand) {
    case 't': return d->width * d->element_bytes;
    case '2': return 2 * d->width * d->element_bytes;
    case 'e': return d->element_bytes;
    case 'f': return sizeof(float);
    case 'i': return sizeof(int32_t);
    default: return 0;
  }
}

static void run_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct divided_call *d = context;
  struct pen_call own = *d->call;
  (void)thread;
  for (size_t k = 0; d->operands[k] != '\0'; k++)
    if (own.operand[k] != NULL)
      own.operand[k] = (char *)own.operand[k] + first * row_bytes(d, d->operands[k]);
  own.dim[0] = (int64_t)(past - first);
  d->kernel(&own);
}

static void divide(const struct pen_call *call, const char *operands, enum pen_dtype dtype,
                   pen_kernel *kernel) {
  const size_t width = strchr(operands, 't') ? (size_t)call->dim[1] : 1;
  const struct divided_call d = {call, operands, kernel, width, pen_dtype_bytes(dtype)};
  pen_parallel_rows((size_t)call->dim[0], width, run_rows, &d);
}

static pen_kernel *whole[PEN_DTYPES][PEN_OP_COUNT]; /* what each function below divides */

/* Of the ops that are not divided by rows the letters are empty, and the functions unused. */
#define PEN_BY_ROWS(letters) letters
#define PEN_BY_KERNEL ""
#define PEN_ONE_THREAD(why) ""
#define PEN_CPU_ROW(kind, threads, workspace)                        \
  static void divide_##kind(const struct pen_call *call) {           \
    divide(call, threads, PEN_F32, whole[PEN_F32][PEN_OP_##kind]);   \
  }                                                                  \
  static void divide_##kind##_bf16(const struct pen_call *call) {    \
    divide(call, threads, PEN_BF16, whole[PEN_BF16][PEN_OP_##kind]); \
  }
#include "kernels/cpu/ops.def"

pen_kernel *pen_row_op(enum pen_op_kind kind, enum pen_dtype dtype, pen_kernel *kernel) {
  static pen_kernel *const dividing[PEN_OP_COUNT][PEN_DTYPES] = {
#define PEN_CPU_ROW(kind, threads, workspace)                    \
  [PEN_OP_##kind] = {sizeof(threads) > 1 ? divide_##kind : NULL, \
                     sizeof(threads) > 1 ? divide_##kind##_bf16 : NULL},
#include "kernels/cpu/ops.def"
  };
  if (pen_threads_count() == 1 || kernel == NULL || dividing[kind][dtype] == NULL) return kernel;
  whole[dtype][kind] = kernel;
  return dividing[kind][dtype];
}
