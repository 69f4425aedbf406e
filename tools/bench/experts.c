/* experts.c: what products of experts attain beside LINEAR, one thread: 8 experts, matrices of 1024
 * x 2048, each token at one expert. LINEAR has as many rows as all of them. Turn by turn; prints
 * one JSON object: for f32 and bf16 the rate of LINEAR with 512 rows in GFLOP/s, and the ratios to
 * LINEAR's of
 *
 *   experts_64, experts_256   EXPERTS with so many rows an expert
 *   experts_on_one            with all rows of the last at one expert
 *   weights_64                EXPERTS_DX's weight gradients, with 64 rows an expert: the time that
 *                             they add
 *
 *   bench_experts [TURNS] */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "kernels/kernels.h"

enum { EXPERTS = 8, WIDTH = 1024, FFN = 2048, ROWS_MAX = 2048, TURNS_MAX = 10000 };

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void *memory(size_t bytes) {
  void *at = aligned_alloc(PEN_ALIGNMENT_BYTES, pen_aligned(bytes + 1));
  if (at == NULL) {
    fprintf(stderr, "bench_experts: no memory\n");
    exit(EXIT_FAILURE);
  }
  return at;
}

/* Normal numbers in the dtype. */
static void *numbers(size_t count, enum pen_dtype dtype, double deviation) {
  static uint64_t first;
  float *x = memory(count * sizeof *x);
  pen_normal(x, count, first, (const uint32_t[]){1, 2}, deviation);
  first += count;
  if (dtype == PEN_F32) return x;
  uint16_t *y = memory(count * sizeof *y);
  pen_f32_to_bf16(y, x, count);
  free(x);
  return y;
}

static void *zeros(size_t count) { return memset(memory(count * sizeof(float)), 0, count * 4); }

/* What all measurements of a dtype share. */
struct expert_arrays {
  enum pen_dtype dtype;
  void *x, *dy, *gate, *up, *down, *out, *dslots;
  float *weight, *dweight, *dgate, *dup, *ddown;
  int32_t *spread, *one; /* [ROWS_MAX] routes: by turns, and all to expert 3 */
};

/* A call that is measured: the least seconds of the processor, for which nothing else counts. */
struct measured_call {
  enum pen_op_kind op;
  struct pen_call call;
  double least_s;
};

static struct expert_arrays open_arrays(enum pen_dtype dtype) {
  const size_t matrix = (size_t)WIDTH * FFN;
  struct expert_arrays a = {.dtype = dtype,
                            .x = numbers((size_t)ROWS_MAX * WIDTH, dtype, 1),
                            .dy = numbers((size_t)ROWS_MAX * WIDTH, dtype, 1),
                            .gate = numbers(EXPERTS * matrix, dtype, .02),
                            .up = numbers(EXPERTS * matrix, dtype, .02),
                            .down = numbers(EXPERTS * matrix, dtype, .02),
                            .out = zeros((size_t)ROWS_MAX * FFN),
                            .dslots = zeros((size_t)ROWS_MAX * WIDTH),
                            .weight = zeros(ROWS_MAX),
                            .dweight = zeros(ROWS_MAX),
                            .dgate = zeros(EXPERTS * matrix),
                            .dup = zeros(EXPERTS * matrix),
                            .ddown = zeros(EXPERTS * matrix),
                            .spread = memory(ROWS_MAX * sizeof *a.spread),
                            .one = memory(ROWS_MAX * sizeof *a.one)};
  for (int32_t r = 0; r < ROWS_MAX; r++) {
    a.spread[r] = r % EXPERTS;
    a.one[r] = 3;
    a.weight[r] = .5f;
  }
  return a;
}

static struct measured_call prepare(const struct expert_arrays *a, enum pen_op_kind op,
                                    struct pen_call call) {
  call.workspace = memory(pen_cpu.workspace_bytes(op, a->dtype, call.dim));
  call.prepared = pen_kernels_prepare(op, a->dtype, call.dim, call.real);
  return (struct measured_call){op, call, 1e9};
}

static struct measured_call linear(const struct expert_arrays *a, int64_t rows) {
  return prepare(
      a, PEN_OP_LINEAR,
      (struct pen_call){.operand = {a->x, a->gate, NULL, a->out}, .dim = {rows, WIDTH, FFN}});
}

static struct measured_call experts(const struct expert_arrays *a, int64_t rows, int32_t *routes) {
  return prepare(
      a, PEN_OP_EXPERTS,
      (struct pen_call){.operand = {a->x, routes, a->weight, a->gate, a->up, a->down, a->out},
                        .dim = {rows, rows, 1, 1, 0, EXPERTS, WIDTH, FFN}});
}

static struct measured_call gradient(const struct expert_arrays *a, int64_t rows, bool of_weights) {
  return prepare(
      a, PEN_OP_EXPERTS_DX,
      (struct pen_call){.operand = {a->dy, a->x, a->spread, a->weight, a->gate, a->up, a->down,
                                    NULL, a->dweight, a->dslots, of_weights ? a->dgate : NULL,
                                    of_weights ? a->dup : NULL, of_weights ? a->ddown : NULL},
                        .dim = {rows, rows, 1, 1, 0, EXPERTS, WIDTH, FFN}});
}

/* Floating-point operations a second, of so many products. */
static double rate(double seconds, int64_t rows, int products) {
  return 2.0 * products * (double)rows * WIDTH * FFN / seconds;
}

static void measure(enum pen_dtype dtype, size_t turns) {
  enum { LINEAR_64, LINEAR_256, EXPERTS_64, EXPERTS_256, ON_ONE, WITHOUT, WITH, CALLS };
  const struct expert_arrays a = open_arrays(dtype);
  const int64_t few = 64 * EXPERTS, many = 256 * EXPERTS;
  struct measured_call of[CALLS] = {
      [LINEAR_64] = linear(&a, few),
      [LINEAR_256] = linear(&a, many),
      [EXPERTS_64] = experts(&a, few, a.spread),
      [EXPERTS_256] = experts(&a, many, a.spread),
      [ON_ONE] = experts(&a, many, a.one),
      [WITHOUT] = gradient(&a, few, false),
      [WITH] = gradient(&a, few, true),
  };
  for (size_t t = 0; t < turns; t++)
    for (int c = 0; c < CALLS; c++) {
      const double start_s = now_s();
      pen_kernel_of(of[c].op, dtype)(&of[c].call);
      const double took_s = now_s() - start_s;
      of[c].least_s = took_s < of[c].least_s ? took_s : of[c].least_s;
    }
  const double of_few = rate(of[LINEAR_64].least_s, few, 1),
               of_many = rate(of[LINEAR_256].least_s, many, 1);
  printf(
      "\"%s\": {\"linear_gflop_per_s\": %.1f, \"experts_64\": %.3f, \"experts_256\": %.3f, "
      "\"experts_on_one\": %.3f, \"weights_64\": %.3f}",
      pen_dtype_text(dtype), of_few / 1e9, rate(of[EXPERTS_64].least_s, few, 3) / of_few,
      rate(of[EXPERTS_256].least_s, many, 3) / of_many, rate(of[ON_ONE].least_s, many, 3) / of_many,
      rate(of[WITH].least_s - of[WITHOUT].least_s, few, 3) / of_few);
}

int main(int argc, char **argv) {
  const size_t turns = argc > 1 ? strtoul(argv[1], NULL, 10) : 15;
  if (turns < 1 || turns > TURNS_MAX || pen_kernels_open() == NULL) {
    fprintf(stderr, "usage: bench_experts [TURNS], 1 to %d\n", TURNS_MAX);
    return EXIT_FAILURE;
  }
  printf("{");
  measure(PEN_F32, turns);
  printf(", ");
  measure(PEN_BF16, turns);
  printf("}\n");
  return EXIT_SUCCESS;
}
