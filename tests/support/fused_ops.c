/* fused_ops.c: see fused_ops.h. */
#include "tests/support/fused_ops.h"

enum { BLOCK_BYTES = 1 << 20 };

/* Operands in one block. */
struct fused_check {
  enum pen_dtype dtype;
  run_in_block *run;
  char *block;
  size_t used, element; /* bytes */
  uint64_t seed;
};

static void *place(struct fused_check *c, size_t bytes) {
  void *at = c->block + c->used;
  c->used += (bytes + PEN_ALIGNMENT_BYTES - 1) / PEN_ALIGNMENT_BYTES * PEN_ALIGNMENT_BYTES;
  assert_true(c->used <= BLOCK_BYTES);
  return at;
}

/* Elements of the dtype. */
static void *random_place(struct fused_check *c, size_t count) {
  const struct operand o = {.count = count, .element_bytes = c->element};
  void *at = place(c, count * c->element);
  spread_operand(at, &o, ++c->seed);
  return at;
}

static void run_op(const struct fused_check *c, enum pen_op_kind kind, struct pen_call call) {
  c->run(c->dtype, kind, &call, c->block, c->used);
}

static void start(struct fused_check *c) {
  c->used = 0;
  memset(c->block, 0, BLOCK_BYTES);
}

/* Columns from `first` on of rows of `row` elements, as a tensor of their own. */
static void *columns(struct fused_check *c, const void *from, size_t rows, size_t row, size_t first,
                     size_t width) {
  char *to = place(c, rows * width * c->element);
  for (size_t r = 0; r < rows; r++)
    memcpy(to + r * width * c->element, (const char *)from + (r * row + first) * c->element,
           width * c->element);
  return to;
}

static void assert_columns(struct fused_check *c, const char *what, const void *own,
                           const void *all, size_t rows, size_t row, size_t first, size_t width) {
  assert_same_bits(what, columns(c, all, rows, row, first, width), own, rows * width * c->element);
}

static void check_products(struct fused_check *c, size_t second, size_t third) {
  enum { ROWS = 7, IN = 32, FIRST = 48 };
  const size_t out = FIRST + second + third;
  start(c);
  char *x = random_place(c, ROWS * IN), *w = random_place(c, out * IN),
       *a = random_place(c, ROWS * IN), *dy = random_place(c, ROWS * out),
       *y[2] = {place(c, ROWS * out * c->element), place(c, ROWS * out * c->element)},
       *dx[2] = {place(c, ROWS * IN * c->element), place(c, ROWS * IN * c->element)};
  float *dw[2] = {place(c, out * IN * sizeof(float)), place(c, out * IN * sizeof(float))};
  for (size_t n = 0; n < 2; n++) spread(dw[n], out * IN, 3);
  char *w1 = w + FIRST * IN * c->element, *w2 = third ? w1 + second * IN * c->element : NULL;
  float *dw1 = dw[1] + FIRST * IN, *dw2 = third ? dw1 + second * IN : NULL;
#define ONE .dim = {ROWS, IN, (int64_t)out}
#define FUSED .dim = {ROWS, IN, (int64_t)out, FIRST, (int64_t)second, (int64_t)third}
  run_op(c, PEN_OP_LINEAR, (struct pen_call){.operand = {x, w, NULL, y[0]}, ONE});
  run_op(c, PEN_OP_LINEAR_FUSED, (struct pen_call){.operand = {x, w, w1, w2, y[1]}, FUSED});
  assert_same_bits("y", y[1], y[0], ROWS * out * c->element);
  run_op(c, PEN_OP_LINEAR_DX, (struct pen_call){.operand = {dy, w, a, dx[0]}, ONE});
  run_op(c, PEN_OP_LINEAR_FUSED_DX, (struct pen_call){.operand = {dy, w, w1, w2, a, dx[1]}, FUSED});
  assert_same_bits("dx", dx[1], dx[0], ROWS * IN * c->element);
  run_op(c, PEN_OP_LINEAR_DW, (struct pen_call){.operand = {dy, x, dw[0]}, ONE});
  run_op(c, PEN_OP_LINEAR_FUSED_DW, (struct pen_call){.operand = {dy, x, dw[1], dw1, dw2}, FUSED});
  assert_same_bits("dw", dw[1], dw[0], out * IN * sizeof(float));
#undef ONE
#undef FUSED
}

struct unit {
  enum pen_op_kind unit, unit_dx, fused, fused_dx;
  bool rotates; /* it is attention */
};

static void check_unit(struct fused_check *c, const struct unit *u, size_t width) {
  enum { ROWS = 5 };
  const size_t count = ROWS * width, bytes = count * c->element;
  start(c);
  void *x = random_place(c, 2 * count), *dy = random_place(c, count),
       *gate = columns(c, x, ROWS, 2 * width, 0, width),
       *up = columns(c, x, ROWS, 2 * width, width, width),
       *y[2] = {place(c, bytes), place(c, bytes)}, *dx = place(c, 2 * bytes),
       *dgate = place(c, bytes), *dup = place(c, bytes);
  const int64_t all = (int64_t)count, wide = (int64_t)width;
  run_op(c, u->unit, (struct pen_call){.operand = {gate, up, y[0]}, .dim = {all}});
  run_op(c, u->fused, (struct pen_call){.operand = {x, y[1]}, .dim = {ROWS, wide}});
  assert_same_bits("y of a unit", y[1], y[0], bytes);
  run_op(c, u->unit_dx, (struct pen_call){.operand = {dy, gate, up, dgate, dup}, .dim = {all}});
  run_op(c, u->fused_dx, (struct pen_call){.operand = {dy, x, dx}, .dim = {ROWS, wide}});
  assert_columns(c, "dgate", dgate, dx, ROWS, 2 * width, 0, width);
  assert_columns(c, "dup", dup, dx, ROWS, 2 * width, width, width);
}

enum { BATCH = 2, SEQUENCE = 21, HEADS = 4, KV_HEADS = 2, ALL = HEADS + 2 * KV_HEADS };
static const size_t heads_of[] = {HEADS, KV_HEADS, KV_HEADS},
                    head_at[] = {0, HEADS, HEADS + KV_HEADS};

static void check_ropes(struct fused_check *c, enum pen_op_kind rope, enum pen_op_kind fused,
                        size_t head_dim) {
  const size_t rows = BATCH * SEQUENCE, row = ALL * head_dim, bytes = rows * row * c->element;
  const int64_t wide = (int64_t)head_dim;
  start(c);
  void *x = random_place(c, rows * row), *y = place(c, bytes), *one = place(c, bytes);
  float *table = place(c, SEQUENCE * head_dim * sizeof *table);
  spread(table, SEQUENCE * head_dim, 5);
  const struct pen_call call = {.operand = {x, table, NULL, y},
                                .dim = {BATCH, SEQUENCE, ALL, wide, SEQUENCE, HEADS, KV_HEADS}};
  run_op(c, fused, call);
  for (size_t part = 0; part < 3; part++) {
    const size_t first = head_at[part] * head_dim, width = heads_of[part] * head_dim;
    void *own = columns(c, x, rows, row, first, width);
    if (part < 2)
      run_op(c, rope,
             (struct pen_call){.operand = {own, table, NULL, one},
                               .dim = {BATCH, SEQUENCE, (int64_t)heads_of[part], wide, SEQUENCE}});
    assert_columns(c, "rotated", part < 2 ? one : own, y, rows, row, first, width);
  }
  run_op(c, fused,
         (struct pen_call){.operand = {x, table, NULL, x},
                           .dim = {BATCH, SEQUENCE, ALL, wide, SEQUENCE, HEADS, KV_HEADS}});
  assert_same_bits("rotated in place", x, y, bytes);
}

static void check_attention(struct fused_check *c, size_t head_dim, int64_t window) {
  const size_t rows = BATCH * SEQUENCE, row = ALL * head_dim, count = rows * HEADS * head_dim,
               bytes = count * c->element, stats = rows * HEADS * sizeof(float);
  start(c);
  void *qkv = random_place(c, rows * row), *dout = random_place(c, count),
       *o[2] = {place(c, bytes), place(c, bytes)}, *lse[2] = {place(c, stats), place(c, stats)},
       *dqkv = place(c, rows * row * c->element), *part[3], *gradient[3];
  int32_t *starts = place(c, rows * sizeof *starts);
  fill_starts(starts, rows, SEQUENCE);
  for (size_t k = 0; k < 3; k++) {
    part[k] = columns(c, qkv, rows, row, head_at[k] * head_dim, heads_of[k] * head_dim);
    gradient[k] = place(c, rows * heads_of[k] * head_dim * c->element);
  }
#define DIMS {BATCH, SEQUENCE, HEADS, KV_HEADS, (int64_t)head_dim, window, ALL}
  run_op(
      c, PEN_OP_ATTENTION,
      (struct pen_call){.operand = {part[0], part[1], part[2], starts, o[0], lse[0]}, .dim = DIMS});
  run_op(c, PEN_OP_ATTENTION_QKV,
         (struct pen_call){.operand = {qkv, starts, o[1], lse[1]}, .dim = DIMS});
  assert_same_bits("o", o[1], o[0], bytes);
  assert_same_bits("lse", lse[1], lse[0], stats);
  run_op(c, PEN_OP_ATTENTION_DX,
         (struct pen_call){.operand = {dout, part[0], part[1], part[2], o[0], lse[0], starts,
                                       gradient[0], gradient[1], gradient[2]},
                           .dim = DIMS});
  run_op(c, PEN_OP_ATTENTION_QKV_DX,
         (struct pen_call){.operand = {dout, qkv, o[0], lse[0], starts, dqkv}, .dim = DIMS});
  for (size_t k = 0; k < 3; k++)
    assert_columns(c, "dqkv", gradient[k], dqkv, rows, row, head_at[k] * head_dim,
                   heads_of[k] * head_dim);
#undef DIMS
}

void check_fused_ops(enum pen_dtype dtype, run_in_block *run) {
  static const struct unit units[] = {
#define PEN_FUSED(kind, fused, products, name, rotates) \
  {PEN_OP_##kind, PEN_OP_##kind##_DX, PEN_OP_##fused, PEN_OP_##fused##_DX, rotates},
#include "kernels/ops.def"
  };
  struct fused_check c = {.dtype = dtype,
                          .run = run,
                          .block = bytes_at(BLOCK_BYTES, 0),
                          .element = pen_dtype_bytes((int)dtype)};
  check_products(&c, 16, 16);
  check_products(&c, 48, 0);
  for (size_t n = 0; n < sizeof units / sizeof *units; n++) {
    if (units[n].rotates) continue;
    check_unit(&c, &units[n], 23); /* rows that are no multiple of 16 bytes, and such */
    check_unit(&c, &units[n], 2056);
  }
  check_ropes(&c, PEN_OP_ROPE, PEN_OP_ROPE_QKV, 6);
  check_ropes(&c, PEN_OP_ROPE_DX, PEN_OP_ROPE_QKV_DX, 32);
  check_attention(&c, 16, SEQUENCE);
  check_attention(&c, 64, 5);
}
