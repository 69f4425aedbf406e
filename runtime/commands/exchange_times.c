/* exchange_times.c: tensor ranks exchange parts of several sizes (see exchange_times.h).
 *
 * A plan of one rank that is made here has the ops of two exchanges, one for each set of slots,
 * which run alternately. In a round each member writes its part, as a product would, runs the ops,
 * and reads every cache line of the others' parts, as the sum would. The times are those of the
 * first member. Of the rounds of a size the lower quartile counts. */
#include "runtime/commands/exchange_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/commands/two_ranks.h"
#include "runtime/exec/exchanges.h"
#include "runtime/exec/find_device.h"

enum { ROUNDS = 200, WARM_ROUNDS = 50, SETS = 2 };
#define BYTES_MAX (PEN_EXCHANGE_BYTES_MIN << 2 * (PEN_EXCHANGE_SIZES - 1))

/* The slots of the first set, of the second, and the part. */
struct exchange_plan {
  struct pen_plan plan;
  struct pen_profile profile;
  struct pen_rank_program tables;
  struct pen_op *ops;         /* [SETS * members] */
  struct pen_tensor *tensors; /* of each the slot; then the part */
  struct pen_rank_memory memory;
  struct pen_shared shared;
};

/* In memory that all members share. */
struct exchange_rounds {
  uint64_t took_ns[ROUNDS + WARM_ROUNDS];
  double ms[PEN_EXCHANGE_SIZES];
};

struct exchange_run {
  struct exchange_plan *exchange;
  struct exchange_rounds *rounds;
};

/* A member while it exchanges parts of one size. */
struct exchange_member {
  struct pen_vm vm;
  struct pen_bound_op *ops; /* [SETS * members] */
  unsigned char *part;
  uint64_t bytes;
};

static uint32_t op_count(const struct pen_plan *plan) {
  return SETS * pen_group_size(plan, PEN_TENSOR);
}

static void make_plan(struct exchange_plan *made, uint32_t members) {
  *made = (struct exchange_plan){.plan = pen_timed_plan(PEN_TRANSPORT_SHM, 1, members)};
  const uint32_t count = op_count(&made->plan);
  made->ops = calloc(count, sizeof *made->ops);
  made->tensors = calloc(count + 1u, sizeof *made->tensors);
  pen_check(made->ops != NULL && made->tensors != NULL, "no memory for exchanges");
  for (uint32_t i = 0; i < count; i++) {
    made->ops[i] = (struct pen_op){.kind = PEN_OP_ALL_GATHER_PART,
                                   .dtype = PEN_F32,
                                   .dim = {0, i % members},
                                   .operand = {count, i}};
    made->tensors[i] =
        (struct pen_tensor){.base = PEN_BASE_EXCHANGE, .offset = i * BYTES_MAX, .bytes = BYTES_MAX};
  }
  const uint64_t slots = count * BYTES_MAX;
  made->memory = (struct pen_rank_memory){.arena_bytes = slots + BYTES_MAX,
                                          .receive_bytes = slots + BYTES_MAX,
                                          .exchange_bytes = slots};
  made->tables = (struct pen_rank_program){.ops = made->ops, .tensors = made->tensors};
  made->profile.ranks = &made->tables;
  made->plan.memory = &made->memory;
  made->plan.profiles = &made->profile;
}

static void bind_ops(struct exchange_member *member, uint64_t bytes) {
  const uint32_t count = op_count(member->vm.plan);
  member->bytes = bytes;
  for (uint32_t i = 0; i < count; i++) {
    free((void *)(uintptr_t)member->ops[i].call.prepared);
    member->ops[i] =
        (struct pen_bound_op){.call = {.dim = {(int64_t)(bytes / sizeof(float)),
                                               i % pen_group_size(member->vm.plan, PEN_TENSOR)},
                                       .operand = {member->part}}};
    pen_bind_exchange(&member->vm, i, &member->ops[i]);
  }
}

static void run_exchange(const struct exchange_member *member, uint32_t set) {
  const uint32_t members = pen_group_size(member->vm.plan, PEN_TENSOR);
  for (uint32_t i = set * members; i < (set + 1) * members; i++) {
    member->ops[i].run(&member->ops[i].call);
  }
  for (uint32_t m = 0; m < members; m++) {
    if (m != member->vm.endpoint->tensor_rank) {
      pen_timed_read(member->vm.arena + (set * members + m) * BYTES_MAX, member->bytes);
    }
  }
}

static void run_rounds(const struct exchange_member *member, struct exchange_rounds *rounds) {
  for (uint32_t round = 0; round < ROUNDS + WARM_ROUNDS; round++) {
    pen_timed_write(member->part, member->bytes, round);
    const uint64_t start_ns = pen_now_ns();
    run_exchange(member, round % SETS);
    if (member->vm.endpoint->tensor_rank == 0) {
      rounds->took_ns[round] = pen_now_ns() - start_ns;
    }
  }
}

/* All members; the first sets the milliseconds of each size. */
static void exchange_all(void *context, uint32_t rank) {
  const struct exchange_run *run = context;
  struct exchange_plan *exchange = run->exchange;
  struct pen_endpoint endpoint;
  struct pen_transport *transport =
      pen_timed_transport_open(&exchange->plan, &exchange->shared, &endpoint, rank);
  struct exchange_member member = {.vm = {.plan = &exchange->plan,
                                          .profile = &exchange->profile,
                                          .program = &exchange->tables,
                                          .memory = &exchange->memory,
                                          .endpoint = &endpoint,
                                          .transport = transport,
                                          .device = pen_device_find(exchange->plan.device),
                                          .arena = endpoint.arena},
                                   .ops = calloc(op_count(&exchange->plan), sizeof *member.ops),
                                   .part = endpoint.arena + exchange->memory.exchange_bytes};
  pen_check(member.ops != NULL, "no memory for exchanges");
  for (uint32_t size = 0; size < PEN_EXCHANGE_SIZES; size++) {
    bind_ops(&member, PEN_EXCHANGE_BYTES_MIN << 2 * size);
    run_rounds(&member, run->rounds);
    pen_endpoint_barrier(&endpoint);
    if (rank == 0) {
      run->rounds->ms[size] =
          1e-6 * pen_timed_quantile_ns(run->rounds->took_ns + WARM_ROUNDS, ROUNDS, 0.25);
    }
    pen_endpoint_barrier(&endpoint);
  }
}

void pen_exchange_times(uint32_t members, const struct pen_busy_cores *cores,
                        double ms[PEN_EXCHANGE_SIZES]) {
  static struct exchange_plan exchange;
  struct exchange_run run = {.exchange = &exchange,
                             .rounds = pen_timed_memory(sizeof(struct exchange_rounds))};
  make_plan(&exchange, members);
  pen_timed_shared_open(&exchange.shared, &exchange.plan);
  pen_timed_ranks_run(members, cores, INFINITY, exchange_all, &run);
  memcpy(ms, run.rounds->ms, sizeof run.rounds->ms);
  pen_shared_close(&exchange.shared);
  munmap(run.rounds, sizeof *run.rounds);
  free(exchange.ops);
  free(exchange.tensors);
}
