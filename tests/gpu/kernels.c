/* kernels.c: every kernel of the CUDA backend against the CPU's, on shapes odd and even: values,
 * bits from run to run, outputs in inputs' places, inputs left alone. Skips without a GPU. Built a
 * second time, over tests/emulation/emulate.h, it runs on the host.
 *
 * PEN_GPU_OPS, patterns of names of operations separated by spaces, leaves out all others; if it
 * begins with "!", those that match.
 */
#include <fnmatch.h>

#include "kernels/cuda/cuda.h"
#include "kernels/head_loss.h"
#include "tests/gpu/device.h"
#include "tests/support/fused_ops.h"

static enum pen_dtype dtype; /* the current dtype: all cases run in f32, then in bf16 */

static int is_chosen(const char *op) {
  const char *chosen = getenv("PEN_GPU_OPS");
  if (chosen == NULL) return 1;
  const int others = chosen[0] == '!';
  char *patterns = strdup(chosen + others), *rest = patterns;
  const char *pattern = NULL;
  int matches = 0;
  while ((pattern = strtok_r(rest, " ", &rest)) != NULL) matches |= fnmatch(pattern, op, 0) == 0;
  free(patterns);
  return matches != others;
}

static int is_over_cache(enum pen_op_kind kind) {
  return kind == PEN_OP_ATTENTION_CACHED || kind == PEN_OP_ATTENTION_CACHED_QKV;
}

static int is_attention(enum pen_op_kind kind) {
  return strncmp(op_rows[kind].name, "ATTENTION", strlen("ATTENTION")) == 0;
}

/* Over bf16 what is between its products is rounded, which the CPU's are not. */
static int is_experts(enum pen_op_kind kind) {
  return kind == PEN_OP_EXPERTS || kind == PEN_OP_EXPERTS_DX;
}

/* Does a case run? In bf16 if the op supports it, and attention if the kernels support head_dim. */
static int fits(const struct op_case *subject) {
  if (!is_chosen(op_rows[subject->kind].name)) return 0;
  if (dtype != PEN_F32 &&
      (pen_kernel_of(subject->kind, dtype) == NULL ||
       (is_attention(subject->kind) && (subject->dim[4] % 8 != 0 || subject->dim[4] > 128))))
    return 0;
  return (subject->tests & LARGE) == 0 || runs_large();
}

/* Where the sequences of a case are in the cache: the starts, or the slots. All but the second,
 * which has no slot, are somewhere after tokens that are there. */
static void fill_places(int32_t *to, const struct operand *o, const int64_t *dim) {
  const size_t batch = (size_t)dim[0], last = (size_t)(dim[7] - dim[1]);
  for (size_t k = 0; k < o->count; k++) {
    const size_t i = k * batch / o->count,
                 first = (last - (i * 21 < last ? i * 21 : 0)) / PEN_CACHED_CHUNK;
    to[k] = !strcmp(o->name, "starts") ? -(int32_t)(first * PEN_CACHED_CHUNK)
            : i == 1                   ? -1
                                       : (int32_t)i;
  }
}

/* Host operands of a case. Integers repeat; every seventh target is ignored. */
static struct pen_call fill(const struct op_case *subject, const struct signature *s) {
  struct pen_call call = {0};
  memcpy(call.dim, subject->dim, sizeof call.dim);
  memcpy(call.real, subject->real, sizeof call.real);
  call.steps = op_case_steps(subject->kind, subject->dim);
  for (size_t i = 0; i < s->count; i++) {
    const struct operand *o = &s->operand[i];
    call.operand[i] = bytes_at(operand_bytes(o), 0);
    if (is_over_cache(subject->kind) && o->integer) {
      fill_places(call.operand[i], o, subject->dim);
      continue;
    }
    if (!strcmp(o->name, "starts")) {
      fill_starts(call.operand[i], o->count, starts_sequence(subject->kind, subject->dim));
      continue;
    }
    for (size_t k = 0; o->integer && k < o->count; k++) {
      const int ignored = !strcmp(o->name, "targets") && k % 7 == 3;
      ((int32_t *)call.operand[i])[k] =
          ignored ? PEN_IGNORED_TARGET : (int32_t)(k * k * 5 % (size_t)subject->integers);
    }
    if (!o->integer && (!o->output || o->accumulates)) spread_operand(call.operand[i], o, i + 1);
    if (!o->output && o->element_bytes == sizeof(double) && !strcmp(o->name, "sum"))
      for (size_t k = 0; k < o->count; k++) /* of exponentials */
        ((double *)call.operand[i])[k] = 1 + (double)(k % 13);
  }
  return call;
}

/* For values stored in bf16; see the tolerances in op_cases.c. */
static void assert_near_bf16(const char *what, const struct op_case *subject,
                             const uint16_t *actual, const uint16_t *expected, size_t count) {
  const double tolerance = is_attention(subject->kind) || is_experts(subject->kind) ? 1e-2
                           : subject->kind == PEN_OP_AFFINE                         ? 2e-3
                                                            : subject->tolerance;
  double most = 0;
  for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)expanded(expected[i])));
  for (size_t i = 0; i < count; i++) {
    const double a = (double)expanded(actual[i]), e = (double)expanded(expected[i]);
    if (!(fabs(a - e) <= (tolerance + 8e-3) * fabs(e) + tolerance * subject->floor * most))
      fail_msg("%s[%zu] is %.9g, expected %.9g", what, i, a, e);
  }
}

static void compare(const struct op_case *subject, const struct operand *o, const void *actual,
                    const void *expected) {
  const double tolerance =
      dtype != PEN_F32 && is_experts(subject->kind) ? 1e-2 : subject->tolerance;
  char what[80];
  snprintf(what, sizeof what, "%s%s(%lld,%lld,%lld).%s", op_rows[subject->kind].name,
           dtype != PEN_F32 ? " over bf16" : "", (long long)subject->dim[0],
           (long long)subject->dim[1], (long long)subject->dim[2], o->name);
  if (subject->tolerance == 0) {
    assert_same_bits(what, actual, expected, operand_bytes(o));
  } else if (o->element_bytes == sizeof(uint16_t)) {
    assert_near_bf16(what, subject, actual, expected, o->count);
  } else if (o->element_bytes == sizeof(double)) {
    const double *a = actual, *e = expected;
    for (size_t i = 0; i < o->count; i++)
      if (!(fabs(a[i] - e[i]) <= subject->tolerance * fabs(e[i])))
        fail_msg("%s[%zu] is %.12g, expected %.12g", what, i, a[i], e[i]);
  } else {
    assert_near(what, actual, widened(expected, o->count), o->count, tolerance, subject->floor);
  }
}

/* The CPU's outputs for a case, in new memory. */
static struct pen_call expected_of(const struct op_case *subject, const struct signature *s,
                                   int without_optional) {
  struct pen_call call = fill(subject, s);
  for (size_t i = 0; i < s->count; i++)
    if (without_optional && s->operand[i].optional) call.operand[i] = NULL;
  run_as(dtype, subject->kind, &call);
  return call;
}

enum { APART = 0, SHARED = 1, WITHOUT_OPTIONAL = 2 };

/* Runs a case on the GPU: with separate outputs, or with outputs in place of inputs, and with or
 * without optional operands. Returns the operands afterwards, in host memory. */
static struct pen_call on_gpu(const struct op_case *subject, const struct signature *s, int form) {
  struct pen_call host = fill(subject, s), call = host;
  for (size_t i = 0; i < s->count; i++) {
    const struct operand *o = &s->operand[i];
    if (call.operand[i] == NULL) continue;
    if ((form & WITHOUT_OPTIONAL) && o->optional)
      host.operand[i] = call.operand[i] = NULL;
    else if ((form & SHARED) && o->shares[0])
      call.operand[i] = call.operand[find_operand(s, o->shares)];
    else
      call.operand[i] = sent(host.operand[i], operand_bytes(o));
  }
  run_there(dtype, subject->kind, &call);
  for (size_t i = 0; i < s->count; i++)
    if (call.operand[i] != NULL)
      fetch(host.operand[i], call.operand[i], operand_bytes(&s->operand[i]));
  return host;
}

static int has_optional(const struct signature *s) {
  for (size_t i = 0; i < s->count; i++)
    if (s->operand[i].optional) return 1;
  return 0;
}

/* The outputs of two runs have the same bits; of two runs of the same form, everything has. */
static void assert_same_run(const struct op_case *subject, const struct signature *s,
                            const struct pen_call *a, const struct pen_call *b) {
  for (size_t i = 0; i < s->count; i++)
    if (s->operand[i].output)
      assert_same_bits(op_rows[subject->kind].name, a->operand[i], b->operand[i],
                       operand_bytes(&s->operand[i]));
}

static void check(const struct op_case *subject) {
  const struct signature s = parse_signature_as(dtype, subject->kind, subject->dim);
  const struct pen_call given = fill(subject, &s), expected = expected_of(subject, &s, 0),
                        actual = on_gpu(subject, &s, APART);
  for (size_t i = 0; i < s.count; i++)
    if (s.operand[i].output)
      compare(subject, &s.operand[i], actual.operand[i], expected.operand[i]);
    else if (given.operand[i] != NULL)
      assert_same_bits(s.operand[i].name, actual.operand[i], given.operand[i],
                       operand_bytes(&s.operand[i]));
  const struct pen_call again = on_gpu(subject, &s, APART), shared = on_gpu(subject, &s, SHARED);
  assert_same_run(subject, &s, &actual, &again);
  assert_same_run(subject, &s, &actual, &shared);
  if (!has_optional(&s)) return;
  const struct pen_call less = expected_of(subject, &s, 1),
                        without = on_gpu(subject, &s, WITHOUT_OPTIONAL);
  for (size_t i = 0; i < s.count; i++)
    if (s.operand[i].output && less.operand[i] != NULL)
      compare(subject, &s.operand[i], without.operand[i], less.operand[i]);
}

/* One test for each op, so that a failure hides no other. */
struct group {
  enum pen_op_kind kind;
  enum pen_dtype dtype;
  char name[64];
};

static int is_of(const struct op_case *subject, const struct group *group) {
  dtype = group->dtype;
  return subject->kind == group->kind && (subject->tests & FOR_CUDA) != 0 && fits(subject);
}

/* The CPU's values, unchanged inputs, the same bits in a second run and with outputs in place of
 * inputs, and without optional operands. */
static void agrees_with_the_cpu(void **state) {
  for (size_t n = 0; n < op_case_count; n++)
    if (is_of(&op_cases[n], *state)) {
      check(&op_cases[n]);
      tidy(state);
    }
}

/* A sequence alone, with small blocks, has the same bits as among others, with large blocks. */
static void a_sequence_knows_no_other(void **state) {
  enum { BATCH = 3, GIVEN_COUNT = 7 };
  dtype = PEN_BF16;
  for (int head_dim = 32; head_dim <= 128 && is_chosen("ATTENTION_DX"); head_dim += 32) {
    struct op_case all = {PEN_OP_ATTENTION_DX, {BATCH, 145, 2, 1, head_dim, 145}, {0}, 0, 0, 0, 0},
                   one = all;
    one.dim[0] = 1;
    const struct signature s = parse_signature_as(dtype, all.kind, all.dim);
    struct pen_call among = on_gpu(&all, &s, APART);
    for (size_t b = 0; b < BATCH; b++) {
      struct pen_call alone = {0};
      memcpy(alone.dim, one.dim, sizeof alone.dim);
      for (size_t i = 0; i < s.count; i++)
        alone.operand[i] = sent((char *)among.operand[i] + b * operand_bytes(&s.operand[i]) / BATCH,
                                operand_bytes(&s.operand[i]) / BATCH);
      run_there(dtype, one.kind, &alone);
      for (size_t i = GIVEN_COUNT; i < s.count; i++) {
        const size_t bytes = operand_bytes(&s.operand[i]) / BATCH;
        void *actual = bytes_at(bytes, 0);
        fetch(actual, alone.operand[i], bytes);
        assert_same_bits(s.operand[i].name, actual, (char *)among.operand[i] + b * bytes, bytes);
      }
    }
    tidy(state);
  }
}

/* The part of an operand of attention that belongs to one sequence and one head of keys. */
static void *of_head(const int64_t *dim, const struct operand *o, const void *from, size_t batch,
                     size_t head) {
  const size_t sequence = (size_t)dim[1], kv_heads = (size_t)dim[3];
  const size_t bytes = operand_bytes(o) / (size_t)dim[0] / kv_heads;
  const unsigned char *first = (const unsigned char *)from + batch * kv_heads * bytes;
  if (!strcmp(o->name, "lse")) return memcpy(bytes_at(bytes, 0), first + head * bytes, bytes);
  unsigned char *own = bytes_at(bytes, 0);
  const size_t row = bytes / sequence;
  for (size_t t = 0; t < sequence; t++)
    memcpy(own + t * row, first + (t * kv_heads + head) * row, row);
  return own;
}

/* A head of keys of one sequence alone, with its queries, has the same bits as among others, and so
 * has a second run, and one with outputs in place of inputs. Without documents, as cuDNN takes it.
 */
static void a_head_knows_no_other(void **state) {
  for (int n = 0; n < 4; n++) {
    const enum pen_op_kind kind = n % 2 ? PEN_OP_ATTENTION_DX : PEN_OP_ATTENTION;
    const struct op_case all = {kind, {2, 145, 6, 2, 64, n < 2 ? 145 : 50}, {0}, 0, 0, 0, 0};
    dtype = PEN_BF16;
    if (!is_chosen(op_rows[kind].name)) continue;
    const struct signature s = parse_signature_as(dtype, kind, all.dim);
    const struct pen_call among = on_gpu(&all, &s, WITHOUT_OPTIONAL),
                          shared = on_gpu(&all, &s, WITHOUT_OPTIONAL | SHARED);
    assert_same_run(&all, &s, &among, &shared);
    for (int part = 0; part < all.dim[0] * all.dim[3]; part++) {
      const size_t batch = (size_t)(part / all.dim[3]), head = (size_t)(part % all.dim[3]);
      struct pen_call alone = {.dim = {1, all.dim[1], all.dim[2] / all.dim[3], 1, 64, all.dim[5]}};
      for (size_t i = 0; i < s.count; i++)
        if (among.operand[i] != NULL)
          alone.operand[i] = sent(of_head(all.dim, &s.operand[i], among.operand[i], batch, head),
                                  operand_bytes(&s.operand[i]) / 4);
      run_there(dtype, kind, &alone);
      for (size_t i = 0; i < s.count; i++) {
        if (!s.operand[i].output) continue;
        const size_t bytes = operand_bytes(&s.operand[i]) / 4;
        void *actual = bytes_at(bytes, 0);
        fetch(actual, alone.operand[i], bytes);
        assert_same_bits(s.operand[i].name, actual,
                         of_head(all.dim, &s.operand[i], among.operand[i], batch, head), bytes);
      }
    }
    tidy(state);
  }
}

/* The rows of one run of each sequence of an operand, or all of one that has none. */
static void *rows_of_run(const struct op_case *all, const struct operand *o, const void *from,
                         size_t run) {
  const size_t sequence = (size_t)all->dim[2], batch = (size_t)all->dim[0] / sequence,
               rows = sequence / (size_t)all->dim[3];
  if (o->count % (batch * sequence)) return sent(from, operand_bytes(o));
  const size_t row = operand_bytes(o) / (batch * sequence);
  unsigned char *own = bytes_at(batch * rows * row, 0);
  for (size_t b = 0; b < batch; b++)
    memcpy(own + b * rows * row, (const unsigned char *)from + (b * sequence + run * rows) * row,
           rows * row);
  return sent(own, batch * rows * row);
}

/* The sums over the rows of one run, by an op that has no other: [sums of the op][width]. */
static void sum_run(const struct op_case *all, const struct signature *s,
                    const struct pen_call *given, size_t run, float *sums) {
  struct op_case one = *all;
  struct pen_call call = {0};
  one.dim[0] /= one.dim[3];
  one.dim[2] /= one.dim[3];
  one.dim[3] = 1;
  memcpy(call.dim, one.dim, sizeof call.dim);
  memcpy(call.real, one.real, sizeof call.real);
  for (size_t i = 0; i < s->count; i++) {
    call.operand[i] = s->operand[i].output
                          ? there(operand_bytes(&s->operand[i]))
                          : rows_of_run(all, &s->operand[i], given->operand[i], run);
    if (s->operand[i].output) pen_cuda.zero(call.operand[i], operand_bytes(&s->operand[i]), stream);
  }
  run_there(dtype, one.kind, &call);
  for (size_t i = 0; i < s->count; i++)
    if (s->operand[i].output && s->operand[i].count == (size_t)one.dim[1]) {
      fetch(sums, call.operand[i], operand_bytes(&s->operand[i]));
      sums += one.dim[1];
    }
}

/* A sum of runs is that of each run by itself, added pairwise: the bits of tensor ranks that have
 * some of the runs each. */
static void a_run_knows_no_other(void **state) {
  enum { RUNS = 4, WIDTH = 40, SUMS = 2 };
  const enum pen_op_kind kinds[] = {PEN_OP_BIAS_DW, PEN_OP_RMSNORM_DX, PEN_OP_LAYERNORM_DX};
  for (int n = 0; n < 2 * 3; n++) {
    const struct op_case all = {kinds[n % 3], {560, WIDTH, 280, RUNS}, {1e-5}, 0, 0, 0, 0};
    dtype = n < 3 ? PEN_F32 : PEN_BF16;
    if (!is_chosen(op_rows[all.kind].name)) continue;
    const struct signature s = parse_signature_as(dtype, all.kind, all.dim);
    const struct pen_call given = fill(&all, &s), actual = on_gpu(&all, &s, APART);
    float(*run)[SUMS * WIDTH] = (void *)floats(RUNS * SUMS * WIDTH);
    for (size_t r = 0; r < RUNS; r++) sum_run(&all, &s, &given, r, run[r]);
    size_t at = 0;
    for (size_t i = 0; i < s.count; i++)
      for (size_t k = 0; s.operand[i].output && s.operand[i].count == WIDTH && k < WIDTH;
           k++, at++) {
        const float sum = (run[0][at] + run[1][at]) + (run[2][at] + run[3][at]),
                    before = s.operand[i].accumulates ? ((float *)given.operand[i])[k] : 0.0f,
                    expected = s.operand[i].accumulates ? before + sum : sum;
        assert_same_bits(s.operand[i].name, (float *)actual.operand[i] + k, &expected, sizeof sum);
      }
    assert_true(at > 0);
    tidy(state);
  }
}

/* With less shared memory for blocks, as on compute capability 8.6, smaller variants give the same
 * values; an op without a variant that fits is refused before it runs. */
static void less_shared_memory(void **state) {
  static const struct op_case fits_there = {
      PEN_OP_ATTENTION_DX, {3, 66, 1, 1, 128, 66}, {0}, 0, 1e-5, 1, 0};
  static const struct op_case refused[] = {
      {PEN_OP_ATTENTION, {1, 8, 1, 1, 256, 8}, {0}, 0, 0, 0, 0},
      {PEN_OP_ATTENTION_DX, {1, 8, 1, 1, 256, 8}, {0}, 0, 0, 0, 0},
      {PEN_OP_RMSNORM_DX, {1, 26000}, {1e-5}, 0, 0, 0, 0},
      {PEN_OP_LAYERNORM_DX, {1, 13000}, {1e-5}, 0, 0, 0, 0}};
  const size_t there_is = pen_cuda_chip.shared_bytes;
  pen_cuda_chip.shared_bytes = 99 << 10;
  for (int i = 0; i < 2; i++) {
    dtype = i == 0 ? PEN_F32 : PEN_BF16;
    check(&fits_there);
    tidy(state);
  }
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const struct op_case *r = &refused[i];
    pen_cuda.prepare(r->kind, PEN_F32, r->dim, r->real);
    char expected[120];
    snprintf(expected, sizeof expected, "%s: each of its blocks needs ", op_rows[r->kind].name);
    const char *said = pen_cuda_replace_error("");
    assert_memory_equal(said, expected, strlen(expected));
    assert_non_null(strstr(said, " bytes of shared memory, and this GPU allows 101376"));
  }
  pen_cuda_chip.shared_bytes = there_is;
}

/* A token out of range: NaN from the look-up, no gradient, NaN as loss. */
static void check_bad_token(void **state, const struct op_case *subject, int32_t token) {
  const struct signature s = parse_signature_as(dtype, subject->kind, subject->dim);
  struct pen_call host = fill(subject, &s), call = host;
  for (size_t i = 0; i < s.count; i++) {
    if (s.operand[i].integer) ((int32_t *)host.operand[i])[2] = token;
    if (strcmp(s.operand[i].name, "a") == 0) host.operand[i] = NULL;
    call.operand[i] =
        host.operand[i] == NULL ? NULL : sent(host.operand[i], operand_bytes(&s.operand[i]));
  }
  run_as(dtype, subject->kind, &host);
  run_there(dtype, subject->kind, &call);
  const size_t last = subject->kind == PEN_OP_CROSS_ENTROPY ||
                              subject->kind == PEN_OP_CROSS_ENTROPY_COLUMNS
                          ? find_operand(&s, "loss")
                          : s.count - 1,
               bytes = operand_bytes(&s.operand[last]);
  unsigned char *actual = bytes_at(bytes, 0);
  fetch(actual, call.operand[last], bytes);
  const struct operand first = {.count = 1, .element_bytes = s.operand[last].element_bytes};
  if (subject->kind == PEN_OP_EMBEDDING_DW) {
    assert_same_bits("dtable", actual, host.operand[last], bytes);
  } else if (subject->kind == PEN_OP_EMBEDDING) {
    const size_t row = 21 * first.element_bytes;
    assert_true(any_nan(actual + 2 * row, &first) &&
                any_nan(actual + 3 * row - first.element_bytes, &first) &&
                !any_nan(actual + 3 * row, &first));
  } else {
    assert_true(isnan(*(double *)actual));
  }
  tidy(state);
}

static void bad_tokens(void **state) {
  const struct op_case cases[] = {{PEN_OP_EMBEDDING, {9, 21, 7, 0, 7}, {0}, 7, 0, 0, 0},
                                  {PEN_OP_EMBEDDING_DW, {9, 20, 7}, {0}, 7, 0, 0, 0},
                                  {PEN_OP_CROSS_ENTROPY, {5, 30}, {1}, 30, 1e-6, 0, 0},
                                  {PEN_OP_CROSS_ENTROPY_COLUMNS, {5, 20, 0, 30}, {0}, 30, 0, 0, 0}};
  enum { CASES = sizeof cases / sizeof *cases };
  for (int n = 0; n < 2 * CASES; n++) {
    dtype = n < CASES ? PEN_F32 : PEN_BF16;
    check_bad_token(state, &cases[n % CASES], -1);
    check_bad_token(state, &cases[n % CASES], cases[n % CASES].integers);
  }
}

enum { NAN_SIZE_MAX = 20000 };

static int64_t product_of(const int64_t dim[PEN_DIMS_MAX]) {
  int64_t product = 1;
  for (int i = 0; i < PEN_DIMS_MAX && dim[i] > 0; i++) product *= dim[i];
  return product;
}

/* Runs a case with a NaN in one place of an input, on GPU and CPU. */
static void check_nan(void **state, const struct op_case *subject, const struct signature *s,
                      size_t operand, size_t place) {
  struct pen_call host = fill(subject, s), call = host;
  if (s->operand[operand].element_bytes == sizeof(float))
    ((float *)host.operand[operand])[place] = NAN;
  else
    ((uint16_t *)host.operand[operand])[place] = 0x7fc0;
  for (size_t k = 0; k < s->count; k++)
    call.operand[k] =
        host.operand[k] == NULL ? NULL : sent(host.operand[k], operand_bytes(&s->operand[k]));
  run_as(dtype, subject->kind, &host);
  run_there(dtype, subject->kind, &call);
  int ours = 0, theirs = 0;
  for (size_t k = 0; k < s->count; k++)
    if (s->operand[k].output) {
      theirs |= any_nan(host.operand[k], &s->operand[k]);
      fetch(host.operand[k], call.operand[k], operand_bytes(&s->operand[k]));
      ours |= any_nan(host.operand[k], &s->operand[k]);
    }
  if (ours != theirs)
    fail_msg("%s: a NaN in %s %s", op_rows[subject->kind].name, s->operand[operand].name,
             ours ? "is made up" : "is lost");
  tidy(state);
}

/* A NaN at the start and at the end of each input reaches an output if it does on the CPU. */
static void nan_comes_through(void **state) {
  for (size_t n = 0; n < 3 * op_case_count; n++) {
    const struct op_case *subject = &op_cases[n % op_case_count];
    dtype = n < op_case_count ? PEN_F32 : n < 2 * op_case_count ? PEN_BF16 : PEN_BF16_PARTIAL;
    if ((subject->tests & FOR_CUDA) == 0 || !fits(subject) || (subject->tests & LARGE) != 0 ||
        product_of(subject->dim) > NAN_SIZE_MAX || subject->kind == PEN_OP_EMBEDDING ||
        subject->integers > 64)
      continue; /* tables: some rows are not looked up */
    const struct signature s = parse_signature_as(dtype, subject->kind, subject->dim);
    for (size_t i = 0; i < s.count; i++) {
      const struct operand *o = &s.operand[i];
      if (o->integer || (o->output && !o->accumulates) || o->element_bytes == sizeof(double))
        continue;
      check_nan(state, subject, &s, i, 0);
      check_nan(state, subject, &s, i, o->count - 1);
    }
  }
}

/* Runs an op over a copy of the block, and fetches all of it. */
static void run_in_block_there(enum pen_dtype of, enum pen_op_kind kind, struct pen_call *call,
                               void *block, size_t bytes) {
  struct pen_call moved = *call;
  char *there = sent(block, bytes);
  for (int k = 0; k < PEN_OPERANDS_MAX; k++)
    if (call->operand[k] != NULL)
      moved.operand[k] = there + ((char *)call->operand[k] - (char *)block);
  run_there(of, kind, &moved);
  fetch(block, there, bytes);
  release_all();
}

/* Also of products whose weights, or gradients, are parts of a tensor: LINEAR_FUSED. */
static void fused_ops_have_the_bits_of_others(void **state) {
  (void)state;
  if (!is_chosen("LINEAR_FUSED")) return;
  check_fused_ops(PEN_F32, run_in_block_there);
  check_fused_ops(PEN_BF16, run_in_block_there);
}

/* Also of chunks, with other blocks. cuDNN has an order of its own. */
static void a_cache_has_the_bits_of_attention(void **state) {
  (void)state;
  if (!is_chosen("ATTENTION_CACHED")) return;
  check_cached_ops(PEN_F32, run_in_block_there);
  if (pen_cuda_library_of(PEN_OP_ATTENTION, PEN_BF16) == NULL)
    check_cached_ops(PEN_BF16, run_in_block_there);
}

/* An op with a kernel needs a case, or a test above. */
static void every_kernel_has_a_case(void **state) {
  (void)state;
  for (int kind = 0; kind < PEN_OP_COUNT; kind++) {
    if (kind >= PEN_OP_LINEAR_FUSED && kind <= PEN_OP_LINEAR_FUSED_DW) continue;
    if (op_rows[kind].name != NULL && !op_has_case((enum pen_op_kind)kind, FOR_CUDA) &&
        pen_cuda.kernel_of((enum pen_op_kind)kind, PEN_F32) != NULL)
      fail_msg("%s has no case", op_rows[kind].name);
  }
}

/* The tests of agrees_with_the_cpu(), as many as there are. */
static size_t add_groups(struct CMUnitTest *tests) {
  static const enum pen_dtype dtypes[] = {PEN_F32, PEN_BF16, PEN_BF16_PARTIAL};
  static struct group groups[3 * PEN_OP_COUNT];
  size_t count = 0;
  for (int i = 0; i < 3 * PEN_OP_COUNT; i++) {
    struct group *group = &groups[count];
    *group = (struct group){.kind = (enum pen_op_kind)(i / 3), .dtype = dtypes[i % 3]};
    snprintf(group->name, sizeof group->name, "agrees_with_the_cpu: %s %s",
             op_rows[group->kind].name, pen_dtype_text((int)group->dtype));
    size_t n = 0;
    while (n < op_case_count && !is_of(&op_cases[n], group)) n++;
    if (n < op_case_count)
      tests[count++] = (struct CMUnitTest){group->name, agrees_with_the_cpu, NULL, tidy, group};
  }
  return count;
}

int main(void) {
  enum { OTHERS = 9 };
  struct CMUnitTest tests[3 * PEN_OP_COUNT + OTHERS] = {
      cmocka_unit_test(every_kernel_has_a_case),
      cmocka_unit_test_teardown(less_shared_memory, tidy),
      cmocka_unit_test_teardown(a_sequence_knows_no_other, tidy),
      cmocka_unit_test_teardown(a_head_knows_no_other, tidy),
      cmocka_unit_test_teardown(a_run_knows_no_other, tidy),
      cmocka_unit_test_teardown(bad_tokens, tidy),
      cmocka_unit_test_teardown(nan_comes_through, tidy),
      cmocka_unit_test_teardown(fused_ops_have_the_bits_of_others, tidy),
      cmocka_unit_test_teardown(a_cache_has_the_bits_of_attention, tidy),
  };
  if (!open_devices()) return 0;
  pen_cuda_chip.processors = 2; /* so that small cases use large blocks */
  return _cmocka_run_group_tests("gpu kernels", tests, OTHERS + add_groups(tests + OTHERS), NULL,
                                 NULL);
}
