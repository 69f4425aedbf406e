/* copy_blocks.c: COPY_BLOCKS, SELECT_TOKENS, SHARD_SEQUENCE and UNSHARD_SEQUENCE: some blocks of
 * each row, put into a row of zeros or added to a row. */
#include <string.h>

#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/vector.h"

/* Of each row of x, of so many elements, those from `source` on go to those of y from `target` on.
 */
struct block_copy {
  const stored *x, *a; /* a null: 0 */
  stored *y;
  size_t from, to, source, target, count;
};

/* y = x + y */
static void add(stored *y, const stored *x, size_t count) {
  for (size_t i = 0; i < count; i += LANES)
    store_n(y + i, load_n(y + i, count - i) + load_n(x + i, count - i), count - i);
}

static void copy_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct block_copy *c = context;
  (void)thread;
  for (size_t r = first; r < past; r++) {
    const stored *x = c->x + r * c->from + c->source;
    stored *y = c->y + r * c->to;
    if (c->a && c->a != c->y) memcpy(y, c->a + r * c->to, c->to * sizeof *y);
    if (c->a) {
      add(y + c->target, x, c->count);
      continue;
    }
    memset(y, 0, c->target * sizeof *y);
    memcpy(y + c->target, x, c->count * sizeof *y);
    memset(y + c->target + c->count, 0, (c->to - c->target - c->count) * sizeof *y);
  }
}

void PEN_NAME(copy_blocks)(const struct pen_call *call) {
  const size_t inner = (size_t)call->dim[4];
  struct block_copy copy = {.x = call->operand[0],
                            .a = call->operand[1],
                            .y = call->operand[2],
                            .from = (size_t)call->dim[2] * inner,
                            .to = (size_t)call->dim[3] * inner,
                            .source = (size_t)call->dim[5] * inner,
                            .target = (size_t)call->dim[6] * inner};
  copy.count = copy.from - copy.source;
  if (copy.count > copy.to - copy.target) copy.count = copy.to - copy.target;
  pen_parallel_rows((size_t)(call->dim[0] * call->dim[1]), copy.to, copy_rows, &copy);
}

/* Of each sequence of x so many tokens from the `first` on. */
static void copy_tokens(const struct pen_call *call, int64_t tokens, int64_t first) {
  const size_t width = (size_t)call->dim[3], to = (size_t)tokens * width;
  const struct block_copy copy = {.x = call->operand[0],
                                  .y = call->operand[1],
                                  .from = (size_t)call->dim[1] * width,
                                  .to = to,
                                  .source = (size_t)first * width,
                                  .count = to};
  pen_parallel_rows((size_t)call->dim[0], to, copy_rows, &copy);
}

void PEN_NAME(select_tokens)(const struct pen_call *call) {
  copy_tokens(call, call->dim[2], call->dim[4]);
}

void PEN_NAME(shard_sequence)(const struct pen_call *call) {
  copy_tokens(call, call->dim[2], call->dim[4]);
}

void PEN_NAME(unshard_sequence)(const struct pen_call *call) { copy_tokens(call, call->dim[1], 0); }
