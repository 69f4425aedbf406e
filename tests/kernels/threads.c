/* threads.c: divisions of work over the threads of a rank: each tile is computed once, by all
 * threads, and each op, and each function of kernels.h on arrays, has the bits of one thread. The
 * calls of one thread are made by a thread of its own, whose work is not divided. */
#include <pthread.h>
#include <stdatomic.h>

#include "kernels/cpu/threads.h"
#include "tests/support/kernels_signature.h"

enum { THREADS = 3 };

/* ---- divisions ---- */

enum { TILES = 1000, NESTED = 10 };

struct counts {
  _Atomic unsigned tile[TILES], of_thread[THREADS], nested;
};

static void count_nested(const void *context, size_t thread, size_t first, size_t past) {
  struct counts *counts = (struct counts *)context;
  atomic_fetch_add(&counts->nested, thread == 0 && first == 0 && past == NESTED);
}

static void count_tiles(const void *context, size_t thread, size_t first, size_t past) {
  struct counts *counts = (struct counts *)context;
  atomic_fetch_add(&counts->of_thread[thread], (unsigned)(past - first));
  for (size_t i = first; i < past; i++) atomic_fetch_add(&counts->tile[i], 1);
  pen_parallel_for(NESTED, count_nested, context);
}

static void each_tile_is_computed_once_in_equal_shares(void **state) {
  (void)state;
  for (size_t tiles = 0; tiles <= TILES; tiles += tiles < 9 ? 1 : 331) {
    struct counts counts = {0};
    pen_parallel_for(tiles, count_tiles, &counts);
    for (size_t i = 0; i < TILES; i++) assert_int_equal(counts.tile[i], i < tiles);
    const size_t busy = tiles < THREADS ? tiles : THREADS;
    assert_int_equal(counts.nested, busy); /* each share makes one nested call, undivided */
    for (size_t t = 0; t < THREADS && tiles > 1; t++)
      assert_in_range(counts.of_thread[t], tiles / THREADS, tiles / THREADS + 1);
  }
}

static void rows_are_divided_if_there_are_many(void **state) {
  (void)state;
  struct counts few = {0}, many = {0};
  pen_parallel_rows(TILES, 1, count_tiles, &few);
  pen_parallel_rows(TILES, 64, count_tiles, &many);
  for (size_t i = 0; i < TILES; i++) assert_int_equal(few.tile[i] + many.tile[i], 2);
  assert_int_equal(few.of_thread[0], TILES);
  for (size_t t = 0; t < THREADS; t++) assert_int_not_equal(many.of_thread[t], 0);
}

static _Atomic unsigned calls; /* of count_call() */

static void count_call(void) { atomic_fetch_add(&calls, 1); }

static void a_call_in_each(void **state) {
  (void)state;
  calls = 0;
  pen_threads_call(count_call);
  assert_int_equal(calls, THREADS);
  assert_int_equal(pen_threads_count(), THREADS);
}

/* ---- bits ---- */

/* Runs `run` in a thread that does not divide its work. */
static void run_alone(void *(*run)(void *), void *context) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, run, context), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
}

struct one_op {
  enum pen_op_kind kind;
  enum pen_dtype dtype;
  struct pen_call call;
};

static void *run_op(void *context) {
  struct one_op *op = context;
  run_as(op->dtype, op->kind, &op->call);
  return NULL;
}

static bool is_norm(enum pen_op_kind kind) {
  return kind == PEN_OP_RMSNORM || kind == PEN_OP_RMSNORM_DX || kind == PEN_OP_LAYERNORM ||
         kind == PEN_OP_LAYERNORM_DX;
}

/* `less`: without optional operands. */
static void compare_op(const struct op_case *subject, enum pen_dtype dtype, bool less) {
  const struct signature s = parse_signature_as(dtype, subject->kind, subject->dim);
  struct one_op several = {subject->kind, dtype, fill_call(subject, &s, 0)},
                alone = {subject->kind, dtype, fill_call(subject, &s, 0)};
  for (size_t i = 0; i < s.count; i++)
    if (less && s.operand[i].optional) several.call.operand[i] = alone.call.operand[i] = NULL;
  run_op(&several);
  run_alone(run_op, &alone);
  assert_same_outputs(subject->kind, &s, &several.call, &alone.call);
}

static void ops_have_the_bits_of_one_thread(void **state) {
  static const enum pen_dtype dtypes[] = {PEN_F32, PEN_BF16, PEN_BF16_PARTIAL};
  for (size_t n = 0; n < op_case_count; n++)
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
      if ((op_cases[n].tests & FOR_THREADS) != 0 &&
          pen_kernel_of(op_cases[n].kind, dtypes[i]) != NULL) {
        compare_op(&op_cases[n], dtypes[i], false);
        if (is_norm(op_cases[n].kind)) compare_op(&op_cases[n], dtypes[i], true);
        free_tensors(state);
      }
}

static void every_divided_op_has_a_case(void **state) {
  (void)state;
#define PEN_BY_ROWS(letters) true
#define PEN_BY_KERNEL true
#define PEN_ONE_THREAD(why) false
  static const bool divided[PEN_OP_COUNT] = {
#define PEN_CPU_ROW(kind, threads, workspace) [PEN_OP_##kind] = threads,
#include "kernels/cpu/ops.def"
  };
  for (int kind = 0; kind < PEN_OP_COUNT; kind++)
    if (divided[kind] && !op_has_case((enum pen_op_kind)kind, FOR_THREADS) &&
        kind != PEN_OP_ATTENTION_CACHED && /* attention_cached.c, fused.c */
        kind != PEN_OP_ATTENTION_CACHED_QKV &&
        (kind < PEN_OP_LINEAR_FUSED || kind > PEN_OP_LINEAR_FUSED_DW))
      fail_msg("%s has no case", op_rows[kind].name);
}

/* ---- arrays ---- */

enum { COUNT = 3 * PEN_NORM_BLOCK + 77 };

/* Results of all functions on arrays. */
struct arrays {
  float p[COUNT], g[COUNT], m[COUNT], v[COUNT], sum[COUNT], normal[COUNT], widened[COUNT];
  uint16_t half[COUNT];
  double squares, most;
};

static void *compute_arrays(void *context) {
  static const struct pen_adamw settings = {.learning_rate = 0.1,
                                            .beta1 = 0.9,
                                            .beta2 = 0.95,
                                            .epsilon = 1e-8,
                                            .weight_decay = 0.1,
                                            .gradient_scale = 0.5,
                                            .updates = 1};
  static const uint32_t key[2] = {3, 4};
  struct arrays *a = context;
  spread(a->p, COUNT, 1), spread(a->g, COUNT, 2), spread(a->m, COUNT, 3);
  a->squares = pen_sum_squares(a->g, COUNT);
  a->most = pen_max_abs(a->g, COUNT);
  const float *const x[] = {a->p, a->g, a->m};
  pen_sum_arrays(a->sum, x, 3, COUNT);
  pen_f32_to_bf16(a->half, a->g, COUNT);
  pen_bf16_to_f32(a->widened, a->half, COUNT);
  pen_normal(a->normal, COUNT, 5, key, 0.25);
  pen_adamw_step(a->p, a->g, a->m, a->v, COUNT, &settings);
  return NULL;
}

static void arrays_have_the_bits_of_one_thread(void **state) {
  (void)state;
  struct arrays *several = bytes_at(sizeof *several, 0), *alone = bytes_at(sizeof *alone, 0);
  memset(several, 0, sizeof *several);
  memset(alone, 0, sizeof *alone);
  compute_arrays(several);
  run_alone(compute_arrays, alone);
  assert_same_bits("arrays", several, alone, sizeof *alone);
  assert_true(several->squares > 0 && several->most > 0 && several->normal[COUNT - 1] != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_tile_is_computed_once_in_equal_shares),
      cmocka_unit_test(rows_are_divided_if_there_are_many),
      cmocka_unit_test(a_call_in_each),
      cmocka_unit_test(ops_have_the_bits_of_one_thread),
      cmocka_unit_test(every_divided_op_has_a_case),
      cmocka_unit_test(arrays_have_the_bits_of_one_thread),
  };
  if (!pen_threads_open(THREADS)) {
    printf("1..0 # SKIP built without OpenMP\n");
    return 0;
  }
  return RUN_ON_EVERY_SET(tests);
}
