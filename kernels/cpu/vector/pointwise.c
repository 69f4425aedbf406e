/* pointwise.c: POINTWISE and POINTWISE_DX: a program of steps over tiles of elements.
 *
 * Each step is a loop over a tile, whose inputs and result stay in the first cache. A whole operand
 * in f32 is read, and the result written, where it is; what is bf16, of a row, of a column, absent,
 * or ends within a vector comes to a tile of its own. Tiles are divided over the threads. */
#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"
#include "kernels/cpu/vector/step_functions.h"

enum {
  TILE = 512, /* elements */
  ROW_OPERAND = 4,
  COLUMN_OPERAND = 6,
  VALUES = PEN_STEP_OPERANDS + PEN_STEP_REGISTERS_MAX,
  THREAD_FLOATS = (VALUES + 1) * TILE, /* cpu/ops.def */
};

/* ---- steps ---- */

/* Of `count` elements, a multiple of LANES. */
typedef void step_function(float *y, const float *at_a, const float *at_b, const float *at_c,
                           size_t count);

#define PEN_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning)           \
  static void step_##kind(float *y, const float *at_a, const float *at_b, const float *at_c, \
                          size_t count) {                                                    \
    for (size_t i = 0; i < count; i += LANES) {                                              \
      const vf a = load(at_a + i), b = load(at_b + i), c = load(at_c + i);                   \
      (void)a, (void)b, (void)c;                                                             \
      store(y + i, value);                                                                   \
    }                                                                                        \
  }
#include "kernels/steps.def"

static step_function *const functions[PEN_STEP_KINDS] = {
#define PEN_STEP(kind, inputs, gradient_a, gradient_b, gradient_c, value, meaning) step_##kind,
#include "kernels/steps.def"
};

/* ---- operands ---- */

/* A call, while a thread computes its tiles. */
struct tiles {
  const struct pen_call *call;
  const float *at[VALUES]; /* the current tile of each operand, and the registers */
  float *own;              /* [VALUES + 1][TILE] */
  size_t first, count;     /* of the tile: elements */
};

static void read_row(const struct tiles *t, const float *row, float *to) {
  const size_t width = (size_t)t->call->dim[1];
  size_t from = t->first % width;
  for (size_t i = 0, n; i < t->count; i += n, from = 0) {
    n = width - from < t->count - i ? width - from : t->count - i;
    memcpy(to + i, row + from, n * sizeof *to);
  }
}

static void read_column(const struct tiles *t, const stored *column, float *to) {
  const size_t width = (size_t)t->call->dim[1];
  for (size_t i = 0; i < t->count; i++) to[i] = widen(column[(t->first + i) / width]);
}

static void read_whole(const struct tiles *t, const stored *x, float *to) {
  for (size_t i = 0, n = t->count; i < t->count; i += LANES, n -= LANES)
    store(to + i, load_n(x + i, n));
}

#ifdef PEN_STORED_BF16
enum { IN_PLACE = 0 };
#else
enum { IN_PLACE = 1 };
#endif

static int is_in_place(const struct tiles *t) { return IN_PLACE && t->count % LANES == 0; }

static void read_operand(struct tiles *t, size_t k) {
  const void *operand = t->call->operand[k];
  float *to = t->own + k * TILE;
  const int whole = k < ROW_OPERAND || k == PEN_STEP_GRADIENT;
  t->at[k] = to;
  if (operand == NULL)
    memset(to, 0, TILE * sizeof *to);
  else if (!whole && k < COLUMN_OPERAND)
    read_row(t, operand, to);
  else if (!whole)
    read_column(t, operand, to);
  else if (is_in_place(t))
    t->at[k] = (const float *)operand + t->first;
  else
    read_whole(t, (const stored *)operand + t->first, to);
}

/* A bit for each operand that a step reads. */
static unsigned operands_read(const struct pen_steps *steps) {
  unsigned set = 0;
  for (uint32_t s = 0; s < steps->count; s++) {
    const uint8_t input[] = {steps->a[s], steps->b[s], steps->c[s]};
    for (size_t k = 0; k < sizeof input && steps->kind[s] != PEN_STEP_CONST; k++)
      if (input[k] < PEN_STEP_OPERANDS) set |= 1u << input[k];
  }
  return set;
}

/* ---- tiles ---- */

static void fill_constants(const struct pen_steps *steps, float *registers) {
  for (uint32_t s = 0; s < steps->count; s++)
    for (size_t i = 0; steps->kind[s] == PEN_STEP_CONST && i < TILE; i++)
      registers[steps->to[s] * TILE + i] = (float)steps->number[s];
}

static void run_program(const struct tiles *t, float *registers, float *result) {
  const struct pen_steps *steps = &t->call->steps;
  const size_t count = (t->count + LANES - 1) / LANES * LANES;
  for (uint32_t s = 0; s < steps->count; s++) {
    if (steps->kind[s] == PEN_STEP_CONST) continue;
    float *y = s + 1 < steps->count ? registers + steps->to[s] * TILE : result;
    functions[steps->kind[s]](y, t->at[steps->a[s]], t->at[steps->b[s]], t->at[steps->c[s]], count);
  }
}

static void run_tile(struct tiles *t, unsigned operands, stored *y) {
  float *registers = t->own + PEN_STEP_OPERANDS * TILE, *result = t->own + VALUES * TILE;
  for (size_t k = 0; k < PEN_STEP_OPERANDS; k++)
    if (operands >> k & 1) read_operand(t, k);
  if (is_in_place(t)) {
    run_program(t, registers, (float *)(void *)(y + t->first));
    return;
  }
  run_program(t, registers, result);
  for (size_t i = 0, n = t->count; i < t->count; i += LANES, n -= LANES)
    store_n(y + t->first + i, load(result + i), n);
}

static void run_tiles(const struct pen_call *call, stored *y, size_t thread, size_t first,
                      size_t past) {
  const size_t elements = (size_t)call->dim[0] * (size_t)call->dim[1];
  struct tiles t = {.call = call, .own = (float *)call->workspace + thread * THREAD_FLOATS};
  const unsigned operands = operands_read(&call->steps);
  for (size_t r = 0; r < PEN_STEP_REGISTERS_MAX; r++)
    t.at[PEN_STEP_OPERANDS + r] = t.own + (PEN_STEP_OPERANDS + r) * TILE;
  fill_constants(&call->steps, t.own + PEN_STEP_OPERANDS * TILE);
  for (size_t tile = first; tile < past; tile++) {
    t.first = tile * TILE;
    t.count = elements - t.first < TILE ? elements - t.first : TILE;
    run_tile(&t, operands, y);
  }
}

static void forward_tiles(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  run_tiles(call, call->operand[PEN_STEP_OPERANDS - 1], thread, first, past);
}

static void gradient_tiles(const void *context, size_t thread, size_t first, size_t past) {
  const struct pen_call *call = context;
  run_tiles(call, call->operand[PEN_STEP_OPERANDS], thread, first, past);
}

static size_t tile_count(const struct pen_call *call) {
  return ((size_t)call->dim[0] * (size_t)call->dim[1] + TILE - 1) / TILE;
}

void PEN_NAME(pointwise)(const struct pen_call *call) {
  pen_parallel_rows(tile_count(call), TILE, forward_tiles, call);
}

void PEN_NAME(pointwise_dx)(const struct pen_call *call) {
  pen_parallel_rows(tile_count(call), TILE, gradient_tiles, call);
}
