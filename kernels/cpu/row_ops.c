/* row_ops.c: divides calls of ops by rows (see row_ops.h). The first dim of such an op is its rows,
 * the second their width.
 *
 * For each operand a letter says what the rows from the n-th on start with:
 *     t    n rows of the width, of the op's dtype
 *     3    three times as many
 *     e    n elements of the op's dtype, if it has no width
 *     f i  n numbers, f32 or i32
 *     -    all of it: the operand is the same for all rows
 */
#include "kernels/cpu/row_ops.h"

#include <string.h>

#include "kernels/cpu/threads.h"

#define ROW_OPS(row)                                                                             \
  row(RMSNORM, "t-tf") row(LAYERNORM, "t--tff") row(BIAS, "t-t") row(SPLIT, "3ttt")              \
      row(SPLIT_DX, "ttt3") row(EMBEDDING, "i-t") row(SWIGLU, "eee") row(SWIGLU_DX, "eeeee")     \
          row(GEGLU, "eee") row(GEGLU_DX, "eeeee") row(GELU, "ee") row(GELU_DX, "eee")           \
              row(GELU_TANH, "ee") row(GELU_TANH_DX, "eee") row(SCALE, "ee") row(SCALE_DX, "ee") \
                  row(ADD, "eee") row(ACCUMULATE, "ff")

struct divided_call {
  const struct pen_call *call;
  const char *operands;
  pen_kernel *kernel;
  size_t width, element_bytes;
};

static size_t row_bytes(const struct divided_call *d, char operand) {
  switch (operand) {
    case 't': return d->width * d->element_bytes;
    case '3': return 3 * d->width * d->element_bytes;
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

#define DIVIDE(kind, operands)                                        \
  static void divide_##kind(const struct pen_call *call) {            \
    divide(call, operands, PEN_F32, whole[PEN_F32][PEN_OP_##kind]);   \
  }                                                                   \
  static void divide_##kind##_bf16(const struct pen_call *call) {     \
    divide(call, operands, PEN_BF16, whole[PEN_BF16][PEN_OP_##kind]); \
  }
ROW_OPS(DIVIDE)

pen_kernel *pen_row_op(enum pen_op_kind kind, enum pen_dtype dtype, pen_kernel *kernel) {
#define OF_F32(kind, operands) [PEN_OP_##kind] = divide_##kind,
#define OF_BF16(kind, operands) [PEN_OP_##kind] = divide_##kind##_bf16,
  static pen_kernel *const dividing[PEN_DTYPES][PEN_OP_COUNT] = {
      [PEN_F32] = {ROW_OPS(OF_F32)}, [PEN_BF16] = {ROW_OPS(OF_BF16)}};
  if (pen_threads_count() == 1 || kernel == NULL || dividing[dtype][kind] == NULL) return kernel;
  whole[dtype][kind] = kernel;
  return dividing[dtype][kind];
}
