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

/* ---- over a cache ---- */

enum { CHUNK = 32, TEXT = 3 * CHUNK, CHUNKED = 2 * CHUNK, READ = CHUNKED + 3, SLOTS = 3 };

/* Texts of TEXT tokens, one for each of BATCH, and what ATTENTION makes of them. */
struct cached_check {
  struct fused_check *c;
  size_t head_dim;
  int64_t window;
  char *qkv, *o;  /* [BATCH][TEXT][all heads or HEADS][head_dim] */
  char *cache[2]; /* of either op: keys, then values */
};

/* The elements of tokens from `first` on of each text, of `width` a token. */
static void *tokens_of(const struct cached_check *t, const char *from, size_t first, size_t count,
                       size_t width) {
  const size_t row = width * t->c->element;
  char *to = place(t->c, BATCH * count * row);
  for (size_t i = 0; i < BATCH; i++)
    memcpy(to + i * count * row, from + (i * TEXT + first) * row, count * row);
  return to;
}

/* Reads tokens by both ops; the second text only takes part in chunks. */
static void read_tokens(const struct cached_check *t, size_t first, size_t count) {
  struct fused_check *c = t->c;
  const size_t used = c->used, wide = t->head_dim,
               bytes = SLOTS * TEXT * KV_HEADS * wide * c->element;
  void *qkv = tokens_of(t, t->qkv, first, count, ALL * wide), *part[3], *o[2],
       *expected = tokens_of(t, t->o, first, count, HEADS * wide);
  int32_t *starts = place(c, BATCH * count * sizeof *starts),
          *slot = place(c, BATCH * sizeof *slot);
  for (size_t k = 0; k < BATCH * count; k++) starts[k] = -(int32_t)first;
  slot[0] = 2;
  slot[1] = count > 1 ? 0 : -1;
  for (size_t k = 0; k < 3; k++)
    part[k] = columns(c, qkv, BATCH * count, ALL * wide, head_at[k] * wide, heads_of[k] * wide);
  const size_t text = count * HEADS * wide * c->element;
  for (int k = 0; k < 2; k++) o[k] = place(c, BATCH * text);
  if (slot[1] < 0) memset((char *)expected + text, 0, text);
#define DIMS {BATCH, (int64_t)count, HEADS, KV_HEADS, (int64_t)wide, t->window, SLOTS, TEXT, ALL}
  run_op(c, PEN_OP_ATTENTION_CACHED,
         (struct pen_call){.operand = {part[0], part[1], part[2], starts, slot, o[0], t->cache[0],
                                       t->cache[0] + bytes},
                           .dim = DIMS});
  run_op(c, PEN_OP_ATTENTION_CACHED_QKV,
         (struct pen_call){.operand = {qkv, starts, slot, o[1], t->cache[1], t->cache[1] + bytes},
                           .dim = DIMS});
#undef DIMS
  for (int k = 0; k < 2; k++) assert_same_bits("o over a cache", o[k], expected, BATCH * text);
  assert_same_bits("the caches", t->cache[0], t->cache[1], 2 * bytes);
  c->used = used;
}

/* What is not written is NaN, and stays so. */
static void check_cache(struct fused_check *c, size_t head_dim, int64_t window) {
  const size_t rows = BATCH * TEXT, row = ALL * head_dim, count = rows * HEADS * head_dim,
               slot = TEXT * KV_HEADS * head_dim * c->element;
  start(c);
  struct cached_check t = {.c = c, .head_dim = head_dim, .window = window};
  t.qkv = random_place(c, rows * row);
  t.o = place(c, count * c->element);
  for (int k = 0; k < 2; k++)
    t.cache[k] = memset(place(c, 2 * SLOTS * slot), 0xff, 2 * SLOTS * slot);
  const size_t used = c->used;
  void *part[3], *lse = place(c, rows * HEADS * sizeof(float));
  for (size_t k = 0; k < 3; k++)
    part[k] = columns(c, t.qkv, rows, row, head_at[k] * head_dim, heads_of[k] * head_dim);
  run_op(c, PEN_OP_ATTENTION,
         (struct pen_call){.operand = {part[0], part[1], part[2], NULL, t.o, lse},
                           .dim = {BATCH, TEXT, HEADS, KV_HEADS, (int64_t)head_dim, window}});
  c->used = used;
  for (size_t first = 0; first < CHUNKED; first += CHUNK) read_tokens(&t, first, CHUNK);
  for (size_t first = CHUNKED; first < READ; first++) read_tokens(&t, first, 1);
  for (size_t b = 0; b < slot; b++) assert_int_equal((unsigned char)t.cache[0][slot + b], 0xff);
}

void check_cached_ops(enum pen_dtype dtype, run_in_block *run) {
  struct fused_check c = {.dtype = dtype,
                          .run = run,
                          .block = bytes_at(BLOCK_BYTES, 0),
                          .element = pen_dtype_bytes((int)dtype)};
  check_cache(&c, 16, TEXT);
  check_cache(&c, 40, 21);
}

void check_fused_ops(enum pen_dtype dtype, run_in_block *run) {
  /* Those between whose products no ROPE comes. */
#define UNIT_true(kind, fused)
#define UNIT_false(kind, fused) \
  {PEN_OP_##kind, PEN_OP_##kind##_DX, PEN_OP_##fused, PEN_OP_##fused##_DX},
  static const struct unit units[] = {
#define PEN_FUSED(kind, fused, products, name, rotates) UNIT_##rotates(kind, fused)
#include "kernels/ops.def"
  };
#undef UNIT_true
#undef UNIT_false
  struct fused_check c = {.dtype = dtype,
                          .run = run,
                          .block = bytes_at(BLOCK_BYTES, 0),
                          .element = pen_dtype_bytes((int)dtype)};
  check_products(&c, 16, 16);
  check_products(&c, 48, 0);
  for (size_t n = 0; n < sizeof units / sizeof *units; n++) {
    check_unit(&c, &units[n], 23); /* rows that are no multiple of 16 bytes, and such */
    check_unit(&c, &units[n], 2056);
  }
  check_ropes(&c, PEN_OP_ROPE, PEN_OP_ROPE_QKV, 6);
  check_ropes(&c, PEN_OP_ROPE_DX, PEN_OP_ROPE_QKV_DX, 32);
  check_attention(&c, 16, SEQUENCE);
  check_attention(&c, 64, 5);
}
