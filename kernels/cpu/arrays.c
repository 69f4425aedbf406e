/* arrays.c: the functions of kernels.h that are no ops: conversions (TO_F32 and TO_BF16 call them),
 * sums, the optimizer and random numbers, by the instruction set in use, divided over the threads.
 */
#include <math.h>

#include "kernels/adamw_correction.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/threads.h"
#include "kernels/cpu/vector/isa.h"

/* ---- conversions ---- */

struct conversion {
  float *f32;
  uint16_t *bf16;
  size_t f32_row, bf16_row, width;
};

static void widen_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct conversion *c = context;
  (void)thread;
  pen_instruction_set.f32->widen_rows(c->f32 + first * c->f32_row, c->f32_row,
                                      c->bf16 + first * c->bf16_row, c->bf16_row, past - first,
                                      c->width);
}

static void narrow_rows(const void *context, size_t thread, size_t first, size_t past) {
  const struct conversion *c = context;
  (void)thread;
  pen_instruction_set.f32->narrow_rows(c->bf16 + first * c->bf16_row, c->bf16_row,
                                       c->f32 + first * c->f32_row, c->f32_row, past - first,
                                       c->width);
}

void pen_bf16_rows_to_f32(float *to, size_t to_row, const uint16_t *from, size_t from_row,
                          size_t rows, size_t width) {
  const struct conversion c = {to, (uint16_t *)from, to_row, from_row, width};
  pen_parallel_rows(rows, width, widen_rows, &c);
}

void pen_f32_rows_to_bf16(uint16_t *to, size_t to_row, const float *from, size_t from_row,
                          size_t rows, size_t width) {
  const struct conversion c = {(float *)from, to, from_row, to_row, width};
  pen_parallel_rows(rows, width, narrow_rows, &c);
}

/* An array: as many rows of one element would be converted one by one. */
static void widen_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct conversion *c = context;
  (void)thread;
  pen_instruction_set.f32->widen_rows(c->f32 + first, 0, c->bf16 + first, 0, 1, past - first);
}

static void narrow_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct conversion *c = context;
  (void)thread;
  pen_instruction_set.f32->narrow_rows(c->bf16 + first, 0, c->f32 + first, 0, 1, past - first);
}

void pen_f32_to_bf16(uint16_t *to, const float *from, size_t count) {
  const struct conversion c = {.f32 = (float *)from, .bf16 = to};
  pen_parallel_rows(count, 1, narrow_range, &c);
}

void pen_bf16_to_f32(float *to, const uint16_t *from, size_t count) {
  const struct conversion c = {.f32 = to, .bf16 = (uint16_t *)from};
  pen_parallel_rows(count, 1, widen_range, &c);
}

void pen_to_f32(const struct pen_call *call) {
  pen_bf16_to_f32(call->operand[1], call->operand[0], (size_t)call->dim[0]);
}

void pen_to_bf16(const struct pen_call *call) {
  pen_f32_to_bf16(call->operand[1], call->operand[0], (size_t)call->dim[0]);
}

/* ---- norms ---- */

/* Blocks of PEN_NORM_BLOCK elements; the last one may be shorter. */
enum { NORM_BLOCKS = 256 }; /* whose results are kept at a time */

struct norm_blocks {
  const float *x;
  size_t count;
  double (*measure)(const float *x, size_t count);
  double *result;
};

static void measure_blocks(const void *context, size_t thread, size_t first, size_t past) {
  const struct norm_blocks *b = context;
  (void)thread;
  for (size_t i = first; i < past; i++) {
    const size_t at = i * PEN_NORM_BLOCK, rest = b->count - at;
    b->result[i] = b->measure(b->x + at, rest < PEN_NORM_BLOCK ? rest : PEN_NORM_BLOCK);
  }
}

typedef double combine_blocks(double so_far, double block);

static double combine(const float *x, size_t count, double (*measure)(const float *, size_t),
                      combine_blocks *with) {
  enum { AT_ONCE = NORM_BLOCKS * PEN_NORM_BLOCK };
  double result[NORM_BLOCKS], total = 0;
  for (size_t first = 0; first < count; first += AT_ONCE) {
    const size_t rest = count - first < AT_ONCE ? count - first : AT_ONCE,
                 blocks = (rest + PEN_NORM_BLOCK - 1) / PEN_NORM_BLOCK;
    const struct norm_blocks run = {x + first, rest, measure, result};
    pen_parallel_for(blocks, measure_blocks, &run);
    for (size_t i = 0; i < blocks; i++) total = with(total, result[i]);
  }
  return total;
}

static double add(double sum, double block) { return sum + block; }

static double greater(double most, double block) {
  return isnan(most) || most > block ? most : block;
}

double pen_sum_squares(const float *x, size_t count) {
  return combine(x, count, pen_instruction_set.f32->sum_squares, add);
}

double pen_max_abs(const float *x, size_t count) {
  return combine(x, count, pen_instruction_set.f32->max_abs, greater);
}

/* ---- the optimizer ---- */

struct adamw_arrays {
  float *parameter, *gradient, *exp_avg, *exp_avg_sq;
  const struct pen_adamw *settings;
  double correction[2];
};

static void step_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct adamw_arrays *a = context;
  (void)thread;
  pen_instruction_set.f32->adamw_step(a->parameter + first, a->gradient + first, a->exp_avg + first,
                                      a->exp_avg_sq + first, past - first, a->settings,
                                      a->correction);
}

void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                    size_t count, const struct pen_adamw *settings) {
  const struct adamw_arrays a = {parameter,
                                 gradient,
                                 exp_avg,
                                 exp_avg_sq,
                                 settings,
                                 {pen_adamw_correction(settings->beta1, settings->updates),
                                  pen_adamw_correction(settings->beta2, settings->updates)}};
  pen_parallel_rows(count, 1, step_range, &a);
}

struct sgd_arrays {
  float *parameter, *gradient, *buffer;
  const struct pen_sgd *settings;
};

static void sgd_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct sgd_arrays *a = context;
  (void)thread;
  pen_instruction_set.f32->sgd_step(a->parameter + first, a->gradient + first,
                                    a->buffer ? a->buffer + first : NULL, past - first,
                                    a->settings);
}

void pen_sgd_step(float *parameter, float *gradient, float *buffer, size_t count,
                  const struct pen_sgd *settings) {
  const struct sgd_arrays a = {parameter, gradient, buffer, settings};
  pen_parallel_rows(count, 1, sgd_range, &a);
}

struct summed_arrays {
  float *y;
  const float *const *x;
  size_t arrays;
};

static void sum_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct summed_arrays *s = context;
  (void)thread;
  pen_instruction_set.f32->sum_arrays(s->y, s->x, s->arrays, first, past);
}

void pen_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count) {
  const struct summed_arrays s = {y, x, arrays};
  pen_parallel_rows(count, 1, sum_range, &s);
}

/* ---- random numbers ---- */

struct normals {
  float *y;
  uint64_t first;
  const uint32_t *key;
  double deviation;
};

static void draw_range(const void *context, size_t thread, size_t first, size_t past) {
  const struct normals *n = context;
  (void)thread;
  pen_instruction_set.f32->normal(n->y + first, past - first, n->first + first, n->key,
                                  n->deviation);
}

void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation) {
  const struct normals n = {y, first, key, deviation};
  pen_parallel_rows(count, 1, draw_range, &n);
}
