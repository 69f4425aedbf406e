/* matmul.c: what matrix products attain on this machine: every product of the train profile
 * of the plan that this is linked with, in its dtype, through kernels.h, timed in one process or in
 * several at once, a core each. Prints one JSON object: the rate of each shape, and over all of
 * them, each with the weight that its flops have in a step.
 *
 *   bench_matmul [PROCESSES] */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/device.h"
#include "kernels/kernels.h"
#include "runtime/plan/plan.h"

enum { SHAPES_MAX = 64, PROCESSES_MAX = 64, REPEATS = 7 };
static const double least_s = 0.02; /* of one measurement */

struct shape {
  int kind, dtype;
  int64_t rows, in, out;
  uint64_t calls; /* in a step */
};

static struct shape shapes[SHAPES_MAX];
static int shape_count;
static double attention_flop;
static int64_t hidden, heads, kv_heads, ffn;

struct shared {
  pthread_barrier_t barrier;
  double gflop_per_s[PROCESSES_MAX][SHAPES_MAX];
};

static const char *name_of(int kind) {
  return kind == PEN_OP_LINEAR ? "LINEAR" : kind == PEN_OP_LINEAR_DX ? "LINEAR_DX" : "LINEAR_DW";
}

static double flop_of(const struct shape *shape) {
  return 2.0 * (double)shape->rows * (double)shape->in * (double)shape->out;
}

/* ---- what the plan asks for ---- */

static void count_product(const struct pen_op *op) {
  int i = 0;
  while (i < shape_count && (shapes[i].kind != op->kind || shapes[i].dtype != op->dtype ||
                             shapes[i].rows != op->dim[0] || shapes[i].in != op->dim[1] ||
                             shapes[i].out != op->dim[2])) {
    i++;
  }
  if (i == SHAPES_MAX) {
    fprintf(stderr, "bench_matmul: more than %d shapes\n", SHAPES_MAX);
    exit(EXIT_FAILURE);
  }
  uint64_t calls = shapes[i].calls + 1;
  shapes[i] = (struct shape){.kind = op->kind,
                             .dtype = op->dtype,
                             .rows = op->dim[0],
                             .in = op->dim[1],
                             .out = op->dim[2],
                             .calls = calls};
  shape_count += i == shape_count;
}

/* Attention as it is usually counted: two products forward and four backward, of the pairs of a
 * query and a key that it sees; without a window half of the square. */
static void count_op(const struct pen_op *op) {
  if (op->kind == PEN_OP_LINEAR || op->kind == PEN_OP_LINEAR_DX || op->kind == PEN_OP_LINEAR_DW) {
    count_product(op);
  } else if (op->kind == PEN_OP_ATTENTION || op->kind == PEN_OP_ATTENTION_DX) {
    heads = op->dim[2], kv_heads = op->dim[3];
    double forward = 2.0 * (double)op->dim[0] * (double)op->dim[5] *
                     (double)(2 * op->dim[1] - op->dim[5]) * (double)(op->dim[2] * op->dim[4]);
    attention_flop += op->kind == PEN_OP_ATTENTION ? forward : 2 * forward;
  } else if (op->kind == PEN_OP_EMBEDDING) {
    hidden = op->dim[1];
  } else if (op->kind == PEN_OP_SWIGLU) {
    ffn = op->dim[0] / ((int64_t)pen_plan.microbatch * pen_plan.sequence);
  }
}

static void count_plan(void) {
  const struct pen_profile *profile = &pen_plan.profiles[0];
  for (uint32_t r = 0; r < pen_plan.rank_count; r++) {
    const struct pen_rank_program *rank = &profile->ranks[r];
    for (uint32_t a = 0; a < rank->action_count; a++) {
      if (rank->actions[a].program != PEN_NONE && rank->actions[a].kind <= PEN_W) {
        const struct pen_program *program = &rank->programs[rank->actions[a].program];
        for (uint32_t i = 0; i < program->op_count; i++) {
          count_op(&rank->ops[program->first_op + i]);
        }
      }
    }
  }
}

/* ---- timing ---- */

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Small numbers, none of them denormal, whatever the products add up; taken for pairs of bf16 they
 * are no less. */
static float *tensor(int64_t count, int dtype) {
  size_t bytes = (size_t)count * sizeof(float);
  float *x =
      aligned_alloc(PEN_ALIGNMENT_BYTES, bytes + PEN_ALIGNMENT_BYTES - bytes % PEN_ALIGNMENT_BYTES);
  if (x == NULL) {
    fprintf(stderr, "bench_matmul: no memory\n");
    exit(EXIT_FAILURE);
  }
  for (int64_t i = 0; i < count; i++) {
    x[i] = (float)(i % 1021 - 510) * 0x1p-12f;
    if (dtype == PEN_BF16) {
      ((uint16_t *)x)[2 * i] = ((uint16_t *)x)[2 * i + 1];
    }
  }
  return x;
}

static int compare(const void *a, const void *b) {
  const double *x = a, *y = b;
  return (*x > *y) - (*x < *y);
}

/* Median rate of some measurements. */
static double time_shape(const struct shape *shape, pthread_barrier_t *barrier) {
  float *x = tensor(shape->rows * shape->in, shape->dtype),
        *y = tensor(shape->rows * shape->out, shape->dtype);
  float *w =
      tensor(shape->in * shape->out, shape->kind == PEN_OP_LINEAR_DW ? PEN_F32 : shape->dtype);
  struct pen_call call = {.dim = {shape->rows, shape->in, shape->out}};
  size_t workspace_bytes = pen_cpu.workspace_bytes((enum pen_op_kind)shape->kind,
                                                   (enum pen_dtype)shape->dtype, call.dim);
  call.workspace = tensor((int64_t)(workspace_bytes / sizeof(float)) + 1, PEN_F32);
  bool forward = shape->kind == PEN_OP_LINEAR, weights = shape->kind == PEN_OP_LINEAR_DW;
  call.operand[0] = forward ? x : y;
  call.operand[1] = weights ? x : w;
  call.operand[weights ? 2 : 3] = forward ? y : weights ? w : x;
  pen_kernel *kernel = pen_kernel_of((enum pen_op_kind)shape->kind, (enum pen_dtype)shape->dtype);
  call.prepared = pen_kernels_prepare((enum pen_op_kind)shape->kind, (enum pen_dtype)shape->dtype,
                                      call.dim, call.real);
  double rates[REPEATS];
  kernel(&call);
  pthread_barrier_wait(barrier);
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    double start_s = now_s(), passed_s;
    int calls = 0;
    do {
      kernel(&call);
      calls++;
      passed_s = now_s() - start_s;
    } while (passed_s < least_s);
    rates[repeat] = flop_of(shape) * calls / passed_s / 1e9;
  }
  free(x), free(y), free(w), free(call.workspace);
  qsort(rates, REPEATS, sizeof *rates, compare);
  return rates[REPEATS / 2];
}

static _Noreturn void time_all(struct shared *shared, int process) {
  cpu_set_t allowed, one;
  int skip = process;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > process) {
    for (int core = 0; core < CPU_SETSIZE; core++) {
      if (CPU_ISSET(core, &allowed) && skip-- == 0) {
        CPU_SET(core, &one);
      }
    }
    sched_setaffinity(0, sizeof one, &one);
  }
  pen_kernels_open();
  for (int i = 0; i < shape_count; i++) {
    shared->gflop_per_s[process][i] = time_shape(&shapes[i], &shared->barrier);
  }
  _exit(0);
}

/* ---- what is printed ---- */

static void print(const struct shared *shared, int processes) {
  double total_flop = 0, rate = 0;
  for (int p = 0; p < processes; p++) {
    double seconds = 0;
    total_flop = 0;
    for (int i = 0; i < shape_count; i++) {
      double flop = flop_of(&shapes[i]) * (double)shapes[i].calls;
      total_flop += flop;
      seconds += flop / shared->gflop_per_s[p][i] / 1e9;
    }
    rate += total_flop / seconds / 1e9;
  }
  printf(
      "{\"processes\":%d,\"gflop_per_s\":%.2f,\"product_flop_per_step\":%.0f,\"attention_flop_per_"
      "step\":%.0f,",
      processes, rate, total_flop, attention_flop);
  printf("\"model\":{\"hidden\":%" PRId64 ",\"heads\":%" PRId64 ",\"kv_heads\":%" PRId64
         ",\"ffn\":%" PRId64 "},\"shapes\":[",
         hidden, heads, kv_heads, ffn);
  for (int i = 0; i < shape_count; i++) {
    double sum = 0;
    for (int p = 0; p < processes; p++) {
      sum += shared->gflop_per_s[p][i];
    }
    printf("%s{\"operation\":\"%s\",\"rows\":%" PRId64 ",\"in\":%" PRId64 ",\"out\":%" PRId64
           ",\"calls_per_step\":%" PRIu64 ",\"gflop_per_s\":%.2f}",
           i == 0 ? "" : ",", name_of(shapes[i].kind), shapes[i].rows, shapes[i].in, shapes[i].out,
           shapes[i].calls, sum);
  }
  printf("]}\n");
}

int main(int argc, char **argv) {
  int processes = argc > 1 ? atoi(argv[1]) : 1, failed = 0;
  if (processes < 1 || processes > PROCESSES_MAX) {
    fprintf(stderr, "bench_matmul: PROCESSES: 1 to %d\n", PROCESSES_MAX);
    return EXIT_FAILURE;
  }
  struct shared *shared =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  if (shared == MAP_FAILED ||
      pthread_barrier_init(&shared->barrier, &attributes, (unsigned)processes) != 0) {
    fprintf(stderr, "bench_matmul: no shared memory\n");
    return EXIT_FAILURE;
  }
  count_plan();
  for (int p = 0; p < processes; p++) {
    if (fork() == 0) {
      time_all(shared, p);
    }
  }
  for (int status; wait(&status) > 0;) {
    failed |= status;
  }
  if (!failed) {
    print(shared, processes);
  }
  return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
