/* exchange_times.c: tensor ranks exchange parts of several sizes (see exchange_times.h).
 *
 * A plan of one rank that is made here has two exchanges, one for each set of slots, which run
 * alternately. In a round each tensor rank writes its part, as a product would, runs an exchange,
 * and reads every cache line of the others' parts, as the sum would. The times are those of the
 * first tensor rank. Of the rounds of a size the lower quartile counts. */
#include "runtime/commands/exchange_times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/commands/two_ranks.h"
#include "runtime/exec/collectives.h"
#include "runtime/exec/find_device.h"

enum { ROUNDS = 200, WARM_ROUNDS = 50, SETS = 2 };
#define BYTES_MAX (PEN_EXCHANGE_BYTES_MIN << 2 * (PEN_EXCHANGE_SIZES - 1))

/* The slots of the first set, of the second, and the part. */
struct exchange_plan {
  struct pen_plan plan;
  struct pen_profile profile;
  struct pen_rank_program tables;
  struct pen_op ops[SETS];
  struct pen_collective collectives[SETS];
  struct pen_put puts[SETS];
  struct pen_rank_memory memory;
  struct pen_shared shared;
};

/* In memory that all tensor ranks share. */
struct exchange_rounds {
  uint64_t took_ns[ROUNDS + WARM_ROUNDS];
  double ms[PEN_EXCHANGE_SIZES];
};

struct exchange_run {
  struct exchange_plan *exchange;
  struct exchange_rounds *rounds;
};

/* A tensor rank while it exchanges parts of one size. */
struct exchange_tensor_rank {
  struct pen_vm vm;
  struct pen_bound_op ops[SETS];
  unsigned char *part;
  uint64_t bytes;
};

static void make_plan(struct exchange_plan *made, uint32_t tensor_ranks) {
  *made = (struct exchange_plan){.plan = pen_timed_plan(PEN_TRANSPORT_SHM, 1, tensor_ranks)};
  const uint64_t slots = (uint64_t)SETS * tensor_ranks * BYTES_MAX;
  for (uint32_t set = 0; set < SETS; set++) {
    made->ops[set] = (struct pen_op){.kind = PEN_OP_ALL_GATHER_PARTIAL, .collective = set};
    made->collectives[set] = (struct pen_collective){.group = PEN_TENSOR,
                                                     .waits = true,
                                                     .completes = true,
                                                     .together = true,
                                                     .event = PEN_NONE,
                                                     .first_put = set,
                                                     .put_count = 1};
    made->puts[set] = (struct pen_put){.kind = PEN_PUT_WRITE,
                                       .group = PEN_TENSOR,
                                       .from = slots,
                                       .to = (uint64_t)set * tensor_ranks * BYTES_MAX,
                                       .weight = PEN_NONE,
                                       .count = 1,
                                       .to_member = BYTES_MAX};
  }
  made->memory = (struct pen_rank_memory){.arena_bytes = slots + BYTES_MAX,
                                          .receive_bytes = slots + BYTES_MAX,
                                          .exchange_bytes = slots};
  made->tables = (struct pen_rank_program){
      .ops = made->ops, .collectives = made->collectives, .puts = made->puts};
  made->profile.ranks = &made->tables;
  made->plan.memory = &made->memory;
  made->plan.profiles = &made->profile;
}

static void run_exchange(const struct exchange_tensor_rank *tensor_rank, uint32_t set) {
  const uint32_t tensor_ranks = pen_group_size(tensor_rank->vm.plan, PEN_TENSOR);
  tensor_rank->ops[set].run(&tensor_rank->ops[set].call);
  for (uint32_t m = 0; m < tensor_ranks; m++) {
    if (m != tensor_rank->vm.endpoint->tensor_rank) {
      pen_timed_read(tensor_rank->vm.arena + (set * tensor_ranks + m) * BYTES_MAX,
                     tensor_rank->bytes);
    }
  }
}

static void run_rounds(const struct exchange_tensor_rank *tensor_rank,
                       struct exchange_rounds *rounds) {
  for (uint32_t round = 0; round < ROUNDS + WARM_ROUNDS; round++) {
    pen_timed_write(tensor_rank->part, tensor_rank->bytes, round);
    const uint64_t start_ns = pen_now_ns();
    run_exchange(tensor_rank, round % SETS);
    if (tensor_rank->vm.endpoint->tensor_rank == 0) {
      rounds->took_ns[round] = pen_now_ns() - start_ns;
    }
  }
}

/* All tensor ranks; the first sets the milliseconds of each size. */
static void exchange_all(void *context, uint32_t rank) {
  const struct exchange_run *run = context;
  struct exchange_plan *exchange = run->exchange;
  struct pen_endpoint endpoint;
  struct pen_transport *transport =
      pen_timed_transport_open(&exchange->plan, &exchange->shared, &endpoint, rank);
  static const struct pen_frame frame = {{0}};
  struct exchange_tensor_rank tensor_rank = {
      .vm = {.plan = &exchange->plan,
             .profile = &exchange->profile,
             .program = &exchange->tables,
             .memory = &exchange->memory,
             .frame = &frame,
             .endpoint = &endpoint,
             .transport = transport,
             .device = pen_device_find(exchange->plan.device),
             .arena = endpoint.arena},
      .part = endpoint.arena + exchange->memory.exchange_bytes};
  for (uint32_t set = 0; set < SETS; set++) {
    pen_bind_runtime_op(&tensor_rank.vm, set, &tensor_rank.ops[set]);
  }
  for (uint32_t size = 0; size < PEN_EXCHANGE_SIZES; size++) {
    tensor_rank.bytes = PEN_EXCHANGE_BYTES_MIN << 2 * size;
    for (uint32_t set = 0; set < SETS; set++) {
      exchange->puts[set].bytes = tensor_rank.bytes;
    }
    run_rounds(&tensor_rank, run->rounds);
    pen_endpoint_barrier(&endpoint);
    if (rank == 0) {
      run->rounds->ms[size] =
          1e-6 * pen_timed_quantile_ns(run->rounds->took_ns + WARM_ROUNDS, ROUNDS, 0.25);
    }
    pen_endpoint_barrier(&endpoint);
  }
}

void pen_exchange_times(uint32_t tensor_ranks, const struct pen_busy_cores *cores,
                        double ms[PEN_EXCHANGE_SIZES]) {
  static struct exchange_plan exchange;
  struct exchange_run run = {.exchange = &exchange,
                             .rounds = pen_timed_memory(sizeof(struct exchange_rounds))};
  make_plan(&exchange, tensor_ranks);
  pen_timed_shared_open(&exchange.shared, &exchange.plan);
  pen_timed_ranks_run(tensor_ranks, cores, INFINITY, exchange_all, &run);
  memcpy(ms, run.rounds->ms, sizeof run.rounds->ms);
  pen_shared_close(&exchange.shared);
  munmap(run.rounds, sizeof *run.rounds);
}
