/* pointwise.c: what a program of POINTWISE attains beside a kernel written for the same formula:
 * SWIGLU, GELU_TANH, and squared ReLU, which is here alone; and ten cheap steps by themselves. 2^22
 * elements, one thread, turn by turn. Prints one JSON object a line: for each, in f32 and bf16, the
 * best of the turns, 10^6 elements a second of both, and their ratio.
 *
 *   bench_pointwise [TURNS] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/device.h"
#include "kernels/kernels.h"

enum { ELEMENTS = 1 << 22, TURNS_MAX = 10000, STEPS_MAX = 12, WORKSPACE_BYTES = 86016 };
enum { X0, X1, R = PEN_STEP_OPERANDS }; /* inputs of steps */

struct measured_program {
  const char *name;
  pen_kernel *by_hand[2]; /* of f32 and bf16; null: an op has it */
  enum pen_op_kind op;    /* PEN_OP_COUNT: nothing is beside it */
  size_t operands;        /* of `op` */
  uint32_t steps, registers;
  uint8_t kind[STEPS_MAX], to[STEPS_MAX], a[STEPS_MAX], b[STEPS_MAX];
  double number[STEPS_MAX];
};

/* ---- squared ReLU by hand ---- */

#if defined __x86_64__ && defined __GNUC__ && !defined __clang__
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), optimize("O3")))
#endif
static void
square_positive(float *restrict y, const float *restrict x, size_t count) {
  for (size_t i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i] * x[i];
}

static void squared_relu(const struct pen_call *call) {
  square_positive(call->operand[1], call->operand[0], ELEMENTS);
}

/* In parts that stay in the cache. */
static void squared_relu_bf16(const struct pen_call *call) {
  enum { PART = 1024 };
  static float x[PART], y[PART];
  uint16_t *from = call->operand[0], *to = call->operand[1];
  for (size_t i = 0; i < ELEMENTS; i += PART) {
    pen_bf16_to_f32(x, from + i, PART);
    square_positive(y, x, PART);
    pen_f32_to_bf16(to + i, y, PART);
  }
}

/* ---- programs ---- */

static const struct measured_program programs[] = {
    {"squared_relu",
     {squared_relu, squared_relu_bf16},
     PEN_OP_COUNT,
     1,
     2,
     1,
     {PEN_STEP_RELU, PEN_STEP_SQUARE},
     {0, 0},
     {X0, R},
     {X0, R},
     {0}},
    {"swiglu",
     {NULL, NULL},
     PEN_OP_SWIGLU,
     2,
     3,
     1,
     {PEN_STEP_SIGMOID, PEN_STEP_MUL, PEN_STEP_MUL},
     {0, 0, 0},
     {X0, X0, R},
     {X0, R, X1},
     {0}},
    {"gelu_tanh",
     {NULL, NULL},
     PEN_OP_GELU_TANH,
     1,
     8,
     3,
     {PEN_STEP_CONST, PEN_STEP_CONST, PEN_STEP_SQUARE, PEN_STEP_MUL, PEN_STEP_ADD, PEN_STEP_MUL,
      PEN_STEP_SIGMOID, PEN_STEP_MUL},
     {0, 1, 2, 2, 2, 2, 2, 0},
     {0, 0, X0, R + 2, R + 2, X0, R + 2, X0},
     {0, 0, X0, R, R + 1, R + 2, R + 2, R + 2},
     {0.0713548163, 1.5957691216}},
    {"ten_cheap_steps",
     {NULL, NULL},
     PEN_OP_COUNT,
     1,
     10,
     1,
     {PEN_STEP_ADD, PEN_STEP_MUL, PEN_STEP_SUB, PEN_STEP_SQUARE, PEN_STEP_MAX, PEN_STEP_MIN,
      PEN_STEP_ABS, PEN_STEP_NEG, PEN_STEP_RELU, PEN_STEP_ADD},
     {0},
     {X0, R, R, R, R, R, R, R, R, R},
     {X0, X0, X0, R, X0, X0, R, R, R, X0},
     {0}},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

/* ---- measurements ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double seconds_of(pen_kernel *run, const struct pen_call *call) {
  const double start = now();
  run(call);
  return now() - start;
}

static void measure(const struct measured_program *p, enum pen_dtype dtype, size_t turns,
                    void *const memory[3], void *workspace) {
  double ours = 1e9, theirs = 1e9; /* the least seconds */
  pen_kernel *program = pen_kernel_of(PEN_OP_POINTWISE, dtype), *other = p->by_hand[dtype];
  struct pen_call call = {
      .operand = {memory[0], memory[1], [PEN_STEP_OPERANDS - 1] = memory[2]},
      .dim = {1, ELEMENTS},
      .steps = {p->steps, p->registers, p->kind, p->to, p->a, p->b, p->b, p->number},
      .workspace = workspace};
  if (p->operands == 1) call.operand[1] = NULL;
  struct pen_call by_hand = {
      .operand = {memory[0], p->operands == 2 ? memory[1] : memory[2], memory[2]},
      .dim = {ELEMENTS}};
  if (other == NULL && p->op != PEN_OP_COUNT) other = pen_kernel_of(p->op, dtype);
  for (size_t t = 0; t < turns; t++) {
    const double own = seconds_of(program, &call), hand = other ? seconds_of(other, &by_hand) : 1;
    ours = own < ours ? own : ours;
    theirs = hand < theirs ? hand : theirs;
  }
  printf("{\"program\": \"%s\", \"dtype\": \"%s\", \"steps\": %u, \"rate\": %.0f", p->name,
         pen_dtype_text(dtype), p->steps, ELEMENTS / ours / 1e6);
  if (other) printf(", \"by_hand\": %.0f, \"ratio\": %.3f", ELEMENTS / theirs / 1e6, theirs / ours);
  printf("}\n");
}

int main(int argc, char **argv) {
  const size_t turns = argc > 1 ? strtoul(argv[1], NULL, 10) : 51;
  void *memory[3], *workspace = aligned_alloc(PEN_ALIGNMENT_BYTES, WORKSPACE_BYTES);
  if (turns < 1 || turns > TURNS_MAX || pen_kernels_open() == NULL || workspace == NULL) {
    fprintf(stderr, "usage: bench_pointwise [TURNS], 1 to %d\n", TURNS_MAX);
    return EXIT_FAILURE;
  }
  for (size_t k = 0; k < 3; k++) {
    memory[k] = aligned_alloc(PEN_ALIGNMENT_BYTES, ELEMENTS * sizeof(float));
    if (memory[k] == NULL) return EXIT_FAILURE;
    pen_normal(memory[k], ELEMENTS, (uint64_t)k << 32, (const uint32_t[]){1, 2}, 1);
  }
  for (int dtype = PEN_F32; dtype <= PEN_BF16; dtype++) {
    if (dtype == PEN_BF16)
      for (size_t k = 0; k < 2; k++) {
        pen_f32_to_bf16(memory[2], memory[k], ELEMENTS);
        memcpy(memory[k], memory[2], ELEMENTS * sizeof(uint16_t));
      }
    for (size_t n = 0; n < PROGRAMS; n++)
      measure(&programs[n], (enum pen_dtype)dtype, turns, memory, workspace);
  }
  return EXIT_SUCCESS;
}
