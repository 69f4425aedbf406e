/* dispatch.c: what the runtime itself costs: the plan that this is linked with, its train
 * rows walked rank by rank with kernels that do nothing and a transport that never waits. Prints
 * one JSON object: nanoseconds for a row, and for a row that computes.
 *
 * Link with a plan and the runtime, without kernels: this file replaces them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "kernels/device.h"
#include "runtime/base/check.h"
#include "runtime/exec/exec.h"
#include "runtime/plan/losses.h"

enum { REPEATS = 7 };
static const uint64_t least_ns = 20 * 1000000; /* of one measurement */

/* ---- kernels that do nothing ---- */

static void nothing(const struct pen_call *call) {
  __asm__ volatile("" : : "r"(call) : "memory"); /* not to be optimised away */
}

const char *pen_kernels_open(void) { return "none"; }

pen_kernel *pen_kernel_of(enum pen_op_kind kind, enum pen_dtype dtype) {
  (void)kind, (void)dtype;
  return nothing;
}

void *pen_kernels_prepare(enum pen_op_kind kind, enum pen_dtype dtype,
                          const int64_t dim[PEN_DIMS_MAX], const double real[PEN_REALS_MAX]) {
  (void)kind, (void)dtype, (void)dim, (void)real;
  return NULL;
}

double pen_sum_squares(const float *x, size_t count) { return (double)count * (double)(x != NULL); }

double pen_max_abs(const float *x, size_t count) { return (double)count * (double)(x != NULL); }

void pen_sum_arrays(float *y, const float *const *x, size_t arrays, size_t count) {
  (void)y, (void)x, (void)arrays, (void)count;
}

void pen_adamw_step(float *parameter, float *gradient, float *exp_avg, float *exp_avg_sq,
                    size_t count, const struct pen_adamw *settings) {
  (void)parameter, (void)gradient, (void)exp_avg, (void)exp_avg_sq, (void)count, (void)settings;
}

void pen_f32_to_bf16(uint16_t *to, const float *from, size_t count) {
  (void)to, (void)from, (void)count;
}

void pen_normal(float *y, size_t count, uint64_t first, const uint32_t key[2], double deviation) {
  (void)y, (void)count, (void)first, (void)key, (void)deviation;
}

static const char *no_error(void) { return NULL; }
static void no_copy(void *to, const void *from, size_t bytes, void *stream) {
  (void)to, (void)from, (void)bytes, (void)stream;
}
static void no_zero(void *memory, size_t bytes, void *stream) {
  (void)memory, (void)bytes, (void)stream;
}
static void no_norm(double *norms, const struct pen_norm_tensor *tensors, size_t tensor_count,
                    void *workspace, void *stream) {
  (void)norms, (void)tensors, (void)tensor_count, (void)workspace, (void)stream;
}
static void no_update(const struct pen_adamw_tensor *tensors, size_t tensor_count,
                      const struct pen_adamw *settings, void *stream) {
  (void)tensors, (void)tensor_count, (void)settings, (void)stream;
}
static void no_clip(struct pen_adamw *settings, const struct pen_adamw *base, const double *stats,
                    size_t count, size_t parts, size_t stride, double clip_norm, int infinity_norm,
                    void *stream) {
  (void)settings, (void)base, (void)stats, (void)count, (void)parts, (void)stride;
  (void)clip_norm, (void)infinity_norm, (void)stream;
}
static void no_event(void *event, void *stream) { (void)event, (void)stream; }

const struct pen_device pen_cpu = {.name = "none",
                                   .error = no_error,
                                   .kernel_of = pen_kernel_of,
                                   .prepare = pen_kernels_prepare,
                                   .copy = no_copy,
                                   .zero = no_zero,
                                   .sum_squares = no_norm,
                                   .max_abs = no_norm,
                                   .adamw_step = no_update,
                                   .clip_scale = no_clip,
                                   .event_record = no_event,
                                   .stream_wait_event = no_event};

/* ---- a transport that never waits ---- */

static bool no_message(struct pen_transport *transport, uint32_t message) {
  __asm__ volatile("" : : "r"(transport), "r"(message) : "memory");
  return true;
}

static bool no_receive(struct pen_transport *transport, uint32_t message, const uint32_t *sends,
                       uint32_t send_count) {
  __asm__ volatile("" : : "r"(transport), "r"(message), "r"(sends), "r"(send_count) : "memory");
  return true;
}

static bool no_stats(struct pen_transport *transport) { return (void)transport, true; }

static void begin_step(struct pen_transport *transport, uint64_t run_step) {
  (void)transport, (void)run_step;
}

static void end_step(struct pen_transport *transport) { (void)transport; }

static const struct pen_transport_ops null_transport = {.name = "null",
                                                        .begin_step = begin_step,
                                                        .send = no_message,
                                                        .receive = no_receive,
                                                        .wait = no_message,
                                                        .publish = no_stats,
                                                        .gather = no_stats,
                                                        .end_step = end_step};

/* ---- measuring ---- */

/* Best of some measurements, in nanoseconds for one walk of the rank's rows. */
static double walk_ns(struct pen_vm *vm) {
  double best = 1e300;
  for (int repeat = 0; repeat < REPEATS; repeat++) {
    uint64_t walks = 0, start_ns = pen_now_ns(), passed_ns;
    do {
      vm->run_step = walks;
      vm->optimizer_step = walks + 1;
      vm->executor->step(vm);
      walks++;
      passed_ns = pen_now_ns() - start_ns;
    } while (passed_ns < least_ns);
    double each = (double)passed_ns / (double)walks;
    best = each < best ? each : best;
  }
  return best;
}

/* Data ops would do their work: kernels they are not. */
static void empty_data_ops(struct pen_vm *vm) {
  for (uint32_t i = 0; i < vm->program->op_count; i++) {
    vm->ops[i].run = nothing;
  }
}

int main(void) {
  const struct pen_plan *plan = &pen_plan;
  const struct pen_profile *profile = &plan->profiles[0];
  struct pen_shared shared = {
      .step_stats = calloc((size_t)pen_stats_entries(plan), sizeof *shared.step_stats)};
  pen_check(shared.step_stats != NULL, "no memory");
  double total_ns = 0;
  uint64_t rows = 0, computes = 0, ops = 0;
  for (uint32_t rank = 0; rank < plan->rank_count; rank++) {
    struct pen_rank_state state = {0};
    unsigned char *arena = mmap(NULL, plan->memory[rank].arena_bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pen_check(arena != MAP_FAILED, "no memory");
    struct pen_endpoint endpoint = {
        .plan = plan, .shared = &shared, .self = &state, .arena = arena, .rank = rank};
    struct pen_transport transport = {.ops = &null_transport,
                                      .endpoint = &endpoint,
                                      .plan = plan,
                                      .profile = profile,
                                      .rank = rank,
                                      .device = &pen_cpu,
                                      .arena = arena};
    struct pen_data data = {.sequence = plan->sequence, .step_losses = 1};
    struct pen_vm vm;
    pen_vm_open(&vm, &(struct pen_vm_config){
                         .transport = &transport, .executor = &pen_host_executor, .data = &data});
    empty_data_ops(&vm);
    total_ns += walk_ns(&vm);
    rows += vm.program->action_count;
    for (uint32_t a = 0; a < vm.program->action_count; a++) {
      const struct pen_action *action = &vm.program->actions[a];
      computes += action->kind <= PEN_W;
      ops += action->kind <= PEN_W ? vm.program->programs[action->program].op_count : 0;
    }
    munmap(arena, plan->memory[rank].arena_bytes);
    free(vm.ops);
    free(vm.relocations);
    free(vm.first_relocation);
    free((void *)vm.weights);
  }
  printf("{\"plan\":\"%s\",\"rows\":%" PRIu64 ",\"compute_rows\":%" PRIu64
         ",\"operations\":%" PRIu64 ",\"row_ns\":%.1f,\"operation_ns\":%.2f}\n",
         plan->name, rows, computes, ops, total_ns / (double)rows, total_ns / (double)ops);
  free(shared.step_stats);
  return 0;
}
