/* kernels_support.h: what the tests of the kernels share: tensors, comparisons, f64 differences,
 * every instruction set. */
#ifndef PEN_TESTS_KERNELS_SUPPORT_H
#define PEN_TESTS_KERNELS_SUPPORT_H

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

enum { TENSORS_MAX = 256 }; /* of one test */

/* Memory aligned as the kernels may expect and no more: 64 bytes past a multiple of 4096 when
 * `shift` is 1, and so on. It ends where the tensor ends, so that an address sanitizer sees a
 * kernel that goes on. Freed after each test. */
void *bytes_at(size_t bytes, size_t shift);

/* Frees the tensor that was made last. */
void free_last_tensor(void);

float *floats(size_t count);
double *doubles(size_t count);

/* Evenly spread over -1 .. 1, from a 64-bit congruence (Knuth's constants); the same for a seed on
 * every machine. */
void spread(float *x, size_t count, uint64_t seed);

float *random_floats(size_t count, uint64_t seed);

float *copy_of(const float *x, size_t count);

double *widened(const float *x, size_t count);

/* Every element within tolerance * (its own size + `floor_share` of the greatest). */
void assert_near(const char *what, const float *actual, const double *expected, size_t count,
                 double tolerance, double floor_share);

void assert_same_bits(const char *what, const void *a, const void *b, size_t bytes);

/* Central differences in f64: gradient[i] = d f / d x[i]. x is left as it was. */
void differences(double (*f)(const void *), const void *context, double *x, size_t count,
                 double *gradient);

/* What the columns of ops.def say of one op. */
struct op_columns {
  const char *name, *dims, *signature, *workspace;
};

extern const struct op_columns op_rows[PEN_OP_COUNT];

/* The value of a dim by its name, for one op. */
int64_t dim_value(enum pen_op_kind kind, const int64_t *dim, const char *name, size_t length);

/* A formula of ops.def: a sum of products of such factors. */
size_t formula(enum pen_op_kind kind, enum pen_dtype dtype, const int64_t *dim, const char *text);

/* Runs a call as the runtime does, with exactly the workspace that ops.def grants. */
void run_as(enum pen_dtype dtype, enum pen_op_kind kind, struct pen_call *call);

void run(enum pen_op_kind kind, struct pen_call *call);

/* bf16, and the nearest to an f32, ties to even; by scalars and another way than the kernels:
 * through the f64 that is halfway. */
float float_of(uint16_t half);

uint16_t half_of(float x);

/* A copy in bf16, and what it holds in f32. */
uint16_t *halves(const float *x, size_t count);

float *floats_of(const uint16_t *x, size_t count);

int open_set(void **state);

int free_tensors(void **state);

/* Runs each test once for every instruction set of this CPU, all in one group. */
int run_on_every_set(const struct CMUnitTest *tests, size_t count);

#define RUN_ON_EVERY_SET(tests) run_on_every_set(tests, sizeof tests / sizeof *tests)

#endif
