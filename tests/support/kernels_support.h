/* kernels_support.h: what the tests of kernels share: tensors, comparisons, finite differences in
 * f64, iteration over instruction sets. */
#ifndef PEN_KERNELS_SUPPORT_H
#define PEN_KERNELS_SUPPORT_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kernels.h"

enum { TENSORS_MAX = 256 }; /* in one test */

/* Memory with the alignment that kernels may expect, and no more: 64 * shift bytes after a multiple
 * of 4096. It ends where the tensor ends, so that an address sanitizer finds accesses after it.
 * Freed after each test. */
void *bytes_at(size_t bytes, size_t shift);

/* Frees the last tensor. */
void free_last_tensor(void);

float *floats(size_t count);
double *doubles(size_t count);

/* Uniform in -1 .. 1, from a 64-bit congruential generator (Knuth's constants); equal for a seed on
 * all machines. */
void spread(float *x, size_t count, uint64_t seed);

float *random_floats(size_t count, uint64_t seed);

float *copy_of(const float *x, size_t count);

double *widened(const float *x, size_t count);

/* Each element within tolerance * (its magnitude + `floor_share` of the maximum). */
void assert_near(const char *what, const float *actual, const double *expected, size_t count,
                 double tolerance, double floor_share);

void assert_same_bits(const char *what, const void *a, const void *b, size_t bytes);

/* Central differences in f64: gradient[i] = d f / d x[i]. Restores x. */
void differences(double (*f)(const void *), const void *context, double *x, size_t count,
                 double *gradient);

/* The columns of ops.def for an op. */
struct op_columns {
  const char *name, *dims, *signature;
};

extern const struct op_columns op_rows[PEN_OP_COUNT];

/* The value of a dim of an op, by name. */
int64_t dim_value(enum pen_op_kind kind, const int64_t *dim, const char *name, size_t length);

/* Runs a call as the runtime does, with exactly the workspace of ops.def. */
void run_as(enum pen_dtype dtype, enum pen_op_kind kind, struct pen_call *call);

void run(enum pen_op_kind kind, struct pen_call *call);

/* bf16, and the nearest bf16 of an f32, ties to even; by scalars and with another method than the
 * kernels: by the f64 in the middle. */
float float_of(uint16_t half);

uint16_t half_of(float x);

/* A copy in bf16, and its values in f32. */
uint16_t *halves(const float *x, size_t count);

float *floats_of(const uint16_t *x, size_t count);

int open_set(void **state);

int free_tensors(void **state);

/* Runs each test for each instruction set of this CPU, in one group. */
int run_on_every_set(const struct CMUnitTest *tests, size_t count);

#define RUN_ON_EVERY_SET(tests) run_on_every_set(tests, sizeof tests / sizeof *tests)

#endif
