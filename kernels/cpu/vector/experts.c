/* experts.c: DISPATCH, EXPERTS, EXPERTS_DX and SUM_CHOICES.
 *
 * The rows of a slot are copied side by side, in f32, expert by expert, and multiplied by the
 * project's own products (product.h), whatever library multiplies others: the bits of a row do not
 * depend on the number of rows that its expert has. Threads divide the slots evenly; each
 * multiplies what its slots have of each expert. A gradient of weights is divided by its product,
 * whose sums are over all rows of the expert. Weights of bf16 are converted block by block.
 *
 * Workspace, for n = part choices slots:
 *
 *     x, y  [n][width]      the slots' rows; y: of bf16 alone, what is rounded
 *     gate, up  [n][ffn]
 *     dy  [n][width], hidden  [n][ffn], space  [HIGH][width or ffn]: of the gradient alone
 *     the slots' order (routes.h), then for each thread a block of a weight and what products use
 */
#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/functions.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/routes.h"

enum {
  BLOCK = PEN_PRODUCT_BLOCK,     /* of a weight that is converted */
  CHAIN = PEN_PRODUCT_DEPTH / 2, /* rows whose sum is added to a gradient as it is computed */
  HIGH = PEN_PRODUCT_HEIGHT
};

static size_t lesser(size_t a, size_t b) { return a < b ? a : b; }

/* ---- rows ---- */

static struct slice slice_of(const struct pen_call *call, int part) {
  return (struct slice){(size_t)call->dim[0], (size_t)call->dim[part], (size_t)call->dim[part + 2],
                        (size_t)call->dim[part + 3]};
}

static void dispatch_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  const struct slice s = slice_of(call, 2);
  const size_t width = (size_t)call->dim[1];
  (void)thread;
  for (size_t i = first; i < past; i++)
    memcpy((stored *)call->operand[2] + i * width,
           (const stored *)call->operand[0] + row_of_slice(&s, i) * width, width * sizeof(stored));
}

void PEN_NAME(dispatch)(const struct pen_call *call) {
  pen_parallel_rows((size_t)call->dim[2], (size_t)call->dim[1], dispatch_rows, call);
}

/* The rows of a call of SUM_CHOICES. */
struct choice_sums {
  const struct pen_call *call;
  struct slice slice;
  const int32_t *slot; /* [part * choices] */
};

static void sum_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct choice_sums *s = context;
  const size_t width = (size_t)s->call->dim[1], choices = (size_t)s->call->dim[3];
  const stored *slots = s->call->operand[0], *a = s->call->operand[2];
  (void)thread;
  for (size_t i = first; i < past; i++) {
    const size_t at = row_of_slice(&s->slice, i) * width;
    const int32_t *slot = s->slot + i * choices;
    stored *y = (stored *)s->call->operand[3] + at;
    for (size_t j = 0; j < width; j += LANES) {
      const size_t n = width - j;
      vf sum = load_n(slots + (size_t)slot[0] * width + j, n);
      for (size_t c = 1; c < choices; c++) sum += load_n(slots + (size_t)slot[c] * width + j, n);
      store_n(y + j, a ? sum + load_n(a + at + j, n) : sum, n);
    }
  }
}

void PEN_NAME(sum_choices)(const struct pen_call *call) {
  const struct slice slice = slice_of(call, 2);
  const size_t choices = (size_t)call->dim[3], count = slice.part * choices;
  const size_t bytes = slice.rows * (size_t)call->dim[1] * sizeof(stored);
  int32_t *slot = call->workspace;
  const struct slot_order slots =
      list_slots(&slice, call->operand[1], (size_t)call->dim[6], choices, slot + count);
  for (size_t n = 0; n < count; n++) slot[slots.pair[n]] = (int32_t)n;
  if (slice.part < slice.rows && !call->operand[2])
    memset(call->operand[3], 0, bytes);
  else if (slice.part < slice.rows && call->operand[2] != call->operand[3])
    memcpy(call->operand[3], call->operand[2], bytes);
  pen_parallel_rows(slice.part, (size_t)call->dim[1] * choices, sum_rows,
                    &(struct choice_sums){call, slice, slot});
}

/* ---- experts ---- */

/* A call of EXPERTS or EXPERTS_DX, and its workspace. */
struct expert_layer {
  const struct pen_call *call;
  struct slice slice;
  struct slot_order slots;
  size_t width, ffn, product_floats; /* the last: of a thread */
  const stored *sent, *dy;           /* the second: of the gradient, or null */
  const int32_t *expert;
  const float *weight;
  const stored *gate, *up, *down;
  float *x, *y, *rows_dy, *rows_gate, *rows_up, *hidden, *space;
  float *products; /* of the first thread */
};

/* What a block of a weight uses, and a thread in all, by the formulas of cpu/ops.def. */
static size_t block_floats(size_t width, size_t ffn) {
  const size_t block = lesser(width, BLOCK) * lesser(ffn, BLOCK);
  return sizeof(stored) < sizeof(float) ? (block + 15) / 16 * 16 : 0;
}

static size_t product_floats(size_t width, size_t ffn, int trains) {
  const size_t w = lesser(width, PEN_PRODUCT_DEPTH), f = lesser(ffn, PEN_PRODUCT_DEPTH);
  const size_t product = w * f + 136 * (w + f) + 1600,
               of_rows = trains ? 768 * (w + f) + 104448 : 0;
  return block_floats(width, ffn) + (product + of_rows + 15) / 16 * 16;
}

static float *take(float **at, size_t count) {
  float *taken = *at;
  *at += pen_aligned(count * sizeof **at) / sizeof **at;
  return taken;
}

static struct expert_layer open_layer(const struct pen_call *call, int trains) {
  void *const *operand = call->operand + trains;
  struct expert_layer l = {.call = call,
                           .slice = slice_of(call, 1),
                           .width = (size_t)call->dim[6],
                           .ffn = (size_t)call->dim[7],
                           .dy = trains ? call->operand[0] : NULL,
                           .sent = operand[0],
                           .expert = operand[1],
                           .weight = operand[2],
                           .gate = operand[3],
                           .up = operand[4],
                           .down = operand[5]};
  const size_t experts = (size_t)call->dim[5], choices = (size_t)call->dim[2],
               count = l.slice.part * choices;
  float *at = call->workspace;
  l.x = take(&at, count * l.width);
  l.rows_gate = take(&at, count * l.ffn);
  l.rows_up = take(&at, count * l.ffn);
  l.rows_dy = take(&at, trains ? count * l.width : 0);
  l.hidden = take(&at, trains ? count * l.ffn : 0);
  l.space = take(&at, trains ? HIGH * (l.width > l.ffn ? l.width : l.ffn) : 0);
  l.y = take(&at, sizeof(stored) < sizeof(float) ? count * l.width : 0);
  l.slots =
      list_slots(&l.slice, l.expert, experts, choices, (int32_t *)take(&at, experts + 1 + count));
  l.product_floats = product_floats(l.width, l.ffn, trains);
  l.products = at;
  return l;
}

/* Copies the rows of slots, in f32. */
static void gather(const struct expert_layer *l, float *to, const stored *rows, size_t first,
                   size_t past) {
  for (size_t n = first; n < past; n++) {
    const stored *from = rows + (size_t)l->slots.pair[n] / l->slots.choices * l->width;
    for (size_t j = 0; j < l->width; j += LANES)
      store_n(to + n * l->width + j, load_n(from + j, l->width - j), l->width - j);
  }
}

/* result[m,n] = left[m,k] w + addend; w, whose rows have `row` elements, transposed or not. */
struct expert_product {
  const float *left, *addend;
  float *result;
  const stored *w;
  size_t row, m, n, k;
  int transposed;
};

#ifdef PEN_STORED_BF16
/* By blocks of w in f32, in rising order of k. */
static void multiply_weight(const struct expert_layer *l, const struct expert_product *p,
                            size_t thread) {
  float *block = l->products + thread * l->product_floats,
        *rest = block + block_floats(l->width, l->ffn);
  for (size_t j = 0; j < p->n; j += BLOCK)
    for (size_t k = 0; k < p->k; k += BLOCK) {
      const size_t n = lesser(p->n - j, BLOCK), deep = lesser(p->k - k, BLOCK);
      const size_t high = p->transposed ? n : deep, wide = p->transposed ? deep : n;
      const stored *from = p->w + (p->transposed ? j * p->row + k : k * p->row + j);
      pen_instruction_set.f32->widen_rows(block, wide, (const uint16_t *)from, p->row, high, wide);
      const float *addend = k > 0 ? p->result : p->addend;
      pen_instruction_set.f32->multiply(&(struct pen_product){.left = {p->left + k, p->k, 0},
                                                              .right = {block, wide, p->transposed},
                                                              .addend = addend ? addend + j : NULL,
                                                              .result = p->result + j,
                                                              .result_row = p->n,
                                                              .m = p->m,
                                                              .n = n,
                                                              .k = deep,
                                                              .workspace = rest});
    }
}
#else
static void multiply_weight(const struct expert_layer *l, const struct expert_product *p,
                            size_t thread) {
  pen_instruction_set.f32->multiply(
      &(struct pen_product){.left = {p->left, p->k, 0},
                            .right = {p->w, p->row, p->transposed},
                            .addend = p->addend,
                            .result = p->result,
                            .result_row = p->n,
                            .m = p->m,
                            .n = p->n,
                            .k = p->k,
                            .workspace = l->products + thread * l->product_floats});
}
#endif

/* rows times gate or up, transposed: of x. */
static void multiply_in(const struct expert_layer *l, const stored *w, size_t e, struct segment s,
                        float *result, size_t thread) {
  multiply_weight(l,
                  &(struct expert_product){.left = l->x + s.first * l->width,
                                           .result = result + s.first * l->ffn,
                                           .w = w + e * l->ffn * l->width,
                                           .row = l->width,
                                           .m = s.past - s.first,
                                           .n = l->ffn,
                                           .k = l->width,
                                           .transposed = 1},
                  thread);
}

/* gate = weight silu(gate) up of a slot. */
static void activate(const struct expert_layer *l, size_t n) {
  const size_t choices = l->slots.choices, pair = (size_t)l->slots.pair[n];
  const float weight =
      l->weight[row_of_slice(&l->slice, pair / choices) * choices + pair % choices];
  float *gate = l->rows_gate + n * l->ffn;
  const float *up = l->rows_up + n * l->ffn;
  for (size_t j = 0; j < l->ffn; j += LANES) {
    const size_t left = l->ffn - j;
    const vf g = load_n(gate + j, left);
    store_n(gate + j, g * sigmoid(g) * load_n(up + j, left) * weight, left);
  }
}

/* Where products of the slots from `first` on go, in f32: they are stored at once, or rounded by
 * store_rows(). */
static float *sums_at(const struct expert_layer *l, stored *to, size_t first) {
  const size_t at = first * l->width;
  return sizeof(stored) < sizeof(float) ? l->y + at : (float *)to + at;
}

static void store_rows(const struct expert_layer *l, stored *to, struct segment s) {
  const size_t past = s.past * l->width;
  for (size_t i = s.first * l->width; sizeof(stored) < sizeof(float) && i < past; i += LANES)
    store_n(to + i, load_n(l->y + i, past - i), past - i);
}

static void compute_slots(const void *context, size_t thread, size_t first, size_t past) {
  const struct expert_layer *l = context;
  stored *slots = (stored *)l->call->operand[6];
  gather(l, l->x, l->sent, first, past);
  for (size_t e = 0; e < l->slots.experts; e++) {
    const struct segment s = segment_of(&l->slots, e, first, past);
    if (s.first >= s.past) continue;
    multiply_in(l, l->gate, e, s, l->rows_gate, thread);
    multiply_in(l, l->up, e, s, l->rows_up, thread);
    for (size_t n = s.first; n < s.past; n++) activate(l, n);
    multiply_weight(l,
                    &(struct expert_product){.left = l->rows_gate + s.first * l->ffn,
                                             .result = sums_at(l, slots, s.first),
                                             .w = l->down + e * l->ffn * l->width,
                                             .row = l->ffn,
                                             .m = s.past - s.first,
                                             .n = l->width,
                                             .k = l->ffn,
                                             .transposed = 1},
                    thread);
    store_rows(l, slots, s);
  }
}

void PEN_NAME(experts)(const struct pen_call *call) {
  const struct expert_layer l = open_layer(call, 0);
  pen_parallel_for(l.slots.count, compute_slots, &l);
}

/* ---- gradient ---- */

/* Of a slot: gate becomes its gradient, up too, and hidden, the gradient of silu(gate) up times the
 * weight, becomes that. The gradient of the weight is added to a. */
static void differentiate(const struct expert_layer *l, size_t n) {
  const size_t choices = l->slots.choices, pair = (size_t)l->slots.pair[n],
               at = row_of_slice(&l->slice, pair / choices) * choices + pair % choices;
  const float weight = l->weight[at], *a = l->call->operand[7];
  float *gate = l->rows_gate + n * l->ffn, *up = l->rows_up + n * l->ffn,
        *hidden = l->hidden + n * l->ffn;
  vf sum = {0};
  for (size_t j = 0; j < l->ffn; j += LANES) {
    const size_t left = l->ffn - j;
    const vf g = load_n(gate + j, left), u = load_n(up + j, left), d = load_n(hidden + j, left);
    const vf s = sigmoid(g), silu = g * s, h = silu * u, dh = d * weight;
    sum = madd(d, h, sum);
    store_n(gate + j, dh * u * s * madd(g, 1.0f - s, splat(1.0f)), left);
    store_n(up + j, dh * silu, left);
    store_n(hidden + j, h * weight, left);
  }
  ((float *)l->call->operand[8])[at] = (a ? a[at] : 0) + lanes_sum(sum);
}

/* The gradient of x: gate's part, then up's added to it. */
static void multiply_back(const struct expert_layer *l, size_t e, struct segment s, float *dx,
                          size_t thread) {
  const size_t of_expert = e * l->ffn * l->width;
  struct expert_product p = {.left = l->rows_gate + s.first * l->ffn,
                             .result = dx,
                             .w = l->gate + of_expert,
                             .row = l->width,
                             .m = s.past - s.first,
                             .n = l->width,
                             .k = l->ffn};
  multiply_weight(l, &p, thread);
  p.left = l->rows_up + s.first * l->ffn;
  p.w = l->up + of_expert;
  p.addend = dx;
  multiply_weight(l, &p, thread);
}

static void differentiate_slots(const void *context, size_t thread, size_t first, size_t past) {
  const struct expert_layer *l = context;
  stored *dslots = (stored *)l->call->operand[9];
  gather(l, l->x, l->sent, first, past);
  gather(l, l->rows_dy, l->dy, first, past);
  for (size_t e = 0; e < l->slots.experts; e++) {
    const struct segment s = segment_of(&l->slots, e, first, past);
    if (s.first >= s.past) continue;
    multiply_in(l, l->gate, e, s, l->rows_gate, thread);
    multiply_in(l, l->up, e, s, l->rows_up, thread);
    multiply_weight(l,
                    &(struct expert_product){.left = l->rows_dy + s.first * l->width,
                                             .result = l->hidden + s.first * l->ffn,
                                             .w = l->down + e * l->ffn * l->width,
                                             .row = l->ffn,
                                             .m = s.past - s.first,
                                             .n = l->ffn,
                                             .k = l->width},
                    thread);
    for (size_t n = s.first; n < s.past; n++) differentiate(l, n);
    multiply_back(l, e, s, sums_at(l, dslots, s.first), thread);
    store_rows(l, dslots, s);
  }
}

/* sum[m,n] += left[k,m]^T right[k,n]: a sum from 0, which is added. Of few k it is in registers. */
static void add_product(const struct expert_layer *l, float *sum, const float *left, size_t m,
                        const float *right, size_t n, size_t k) {
  const int at_once = k <= CHAIN;
  for (size_t i = 0, rows; i < m; i += rows, sum += rows * n) {
    rows = at_once ? m : lesser(HIGH, m - i);
    pen_instruction_set.f32->multiply(&(struct pen_product){.left = {left + i, m, 1},
                                                            .right = {right, n, 0},
                                                            .addend = at_once ? sum : NULL,
                                                            .result = at_once ? sum : l->space,
                                                            .result_row = n,
                                                            .m = rows,
                                                            .n = n,
                                                            .k = k,
                                                            .workspace = l->products});
    for (size_t j = 0, past = at_once ? 0 : rows * n; j < past; j += LANES)
      store_n(sum + j, load_n(sum + j, past - j) + load_n(l->space + j, past - j), past - j);
  }
}

/* Of expert e, from all its rows. */
static void add_gradients(const struct expert_layer *l, size_t e) {
  const struct segment s = segment_of(&l->slots, e, 0, l->slots.count);
  const size_t count = s.past - s.first, at = e * l->ffn * l->width;
  const float *x = l->x + s.first * l->width, *dy = l->rows_dy + s.first * l->width,
              *gate = l->rows_gate + s.first * l->ffn, *up = l->rows_up + s.first * l->ffn,
              *hidden = l->hidden + s.first * l->ffn;
  float *dgate = l->call->operand[10], *dup = l->call->operand[11], *ddown = l->call->operand[12];
  if (s.first >= s.past) return;
  if (dgate) add_product(l, dgate + at, gate, l->ffn, x, l->width, count);
  if (dup) add_product(l, dup + at, up, l->ffn, x, l->width, count);
  if (ddown) add_product(l, ddown + at, dy, l->width, hidden, l->ffn, count);
}

void PEN_NAME(experts_dx)(const struct pen_call *call) {
  const struct expert_layer l = open_layer(call, 1);
  const float *a = call->operand[7];
  const size_t bytes = l.slice.rows * l.slots.choices * sizeof *a;
  if (!a)
    memset(call->operand[8], 0, bytes);
  else if (a != call->operand[8])
    memcpy(call->operand[8], a, bytes);
  pen_parallel_for(l.slots.count, differentiate_slots, &l);
  for (size_t e = 0; e < l.slots.experts; e++) add_gradients(&l, e);
}
