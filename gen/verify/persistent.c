/* persistent.c: what persists in the arenas of the finished plan: weights, gradients, moments,
 * losses, constants; and which tensor is which of them. */
#include <string.h>

#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "gen/base/arena.h"
#include "gen/base/sort.h"
#include "runtime/plan/losses.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

static bool is_aligned_offset(uint64_t offset) { return offset % PEN_ALIGNMENT_BYTES == 0; }

/* ---- addresses ---- */

/* A range of the persistent part, and what it holds: `what` of `name`. */
struct persistent_range {
  uint64_t first, past;
  const char *name, *what;
};

struct range_list {
  struct persistent_range *range;
  size_t count;
};

static void add_range(struct range_list *list, uint64_t first, uint64_t bytes, const char *name,
                      const char *what) {
  list->range[list->count++] = (struct persistent_range){first, first + bytes, name, what};
}

/* The ranges of a rank are in the persistent part, aligned and disjoint. */
static bool check_ranges(const struct pen_rank_context *b, const struct range_list *list) {
  const struct persistent_range *range = list->range;
  const size_t count = list->count;
  struct pen_problem *problem = b->checked->problem;
  struct pen_keyed *sorted = pen_new(count + 1, sizeof *sorted);
  for (size_t index = 0; index < count; index++)
    sorted[index] = (struct pen_keyed){range[index].first, (uint32_t)index};
  pen_sort(sorted, count);
  const struct persistent_range *before = NULL;
  for (size_t index = 0; index < count; index++) {
    const struct persistent_range *at = &range[sorted[index].index];
    if (at->first < b->memory->receive_bytes || at->past > b->memory->persistent_end ||
        at->past < at->first)
      return pen_problem_note(problem, b->rank, PEN_NONE, "%s of %s is outside the persistent part",
                              at->what, at->name);
    if (!is_aligned_offset(at->first))
      return pen_problem_note(problem, b->rank, PEN_NONE, "%s of %s is not aligned", at->what,
                              at->name);
    if (at->past == at->first) continue; /* empty */
    if (before && at->first < before->past)
      return pen_problem_note(problem, b->rank, PEN_NONE, "%s of %s overlaps %s of %s", at->what,
                              at->name, before->what, before->name);
    before = at;
  }
  pen_free(sorted);
  return true;
}

/* Only a plan with a train profile has gradients and moments. */
static bool has_training(const struct pen_plan *plan) {
  for (uint32_t index = 0; index < plan->profile_count; index++)
    if (plan->profiles[index].kind == PEN_TRAIN) return true;
  return false;
}

/* Elements of a weight on a rank: all, or those of the largest shard. */
static uint64_t kept_count(const struct pen_plan *plan, const struct pen_weight *weight,
                           bool sharded) {
  return sharded ? pen_largest_shard(pen_division_of(weight, pen_group_size(plan, PEN_SHARD)))
                 : weight->count;
}

uint64_t pen_stored_bytes(const struct pen_plan *plan, const struct pen_weight *weight,
                          bool sharded) {
  return kept_count(plan, weight, sharded) * sizeof(float);
}

uint64_t pen_value_bytes(const struct pen_plan *plan, uint32_t index, uint8_t dtype) {
  const struct pen_weight *weight = &plan->weights[index];
  bool sharded = dtype == PEN_BF16 ? weight->bf16_sharded : weight->value_sharded, sent = false;
  for (uint32_t n = 0; n < plan->tie_count; n++)
    sent = sent || (plan->ties[n].weight == index && plan->ties[n].dtype == dtype &&
                    plan->ties[n].rank != weight->rank);
  return pen_bytes_passed(plan->audits && sent,
                          kept_count(plan, weight, sharded) * pen_dtype_bytes(dtype));
}

static bool is_tied_weight(const struct pen_plan *plan, uint32_t weight) {
  for (uint32_t n = 0; n < plan->tie_count; n++)
    if (plan->ties[n].weight == weight) return true;
  return false;
}

/* What its optimizer keeps of a weight from step to step. */
static uint32_t moments_of(const struct pen_plan *plan, const struct pen_weight *weight) {
  if (weight->frozen || weight->optimizer == PEN_OPTIMIZER_BALANCE) return 0; /* router_losses.c */
  if (weight->optimizer == PEN_OPTIMIZER_SGD) return plan->optimizer.momentum > 0;
  return weight->optimizer == PEN_OPTIMIZER_ADAMW ? 2 : 1;
}

static bool check_moments(const struct pen_rank_context *b, const struct pen_weight *weight) {
  const uint32_t needed = moments_of(b->plan, weight);
  return weight->moment_count == needed ||
         pen_problem_note(b->checked->problem, b->rank, PEN_NONE, "%s has %u moments, not %u",
                          weight->name, weight->moment_count, needed);
}

/* A value is sharded where only the optimizer and ALL_GATHER read it: products read the bf16 copy,
 * or what is gathered. */
static bool check_sharded(const struct pen_rank_context *b, uint32_t number) {
  const struct pen_weight *weight = &b->plan->weights[number];
  bool copied = weight->bf16_offset != UINT64_MAX, shares = b->plan->sharding == PEN_SHARD_WEIGHTS,
       tied = is_tied_weight(b->plan, number);
  bool wanted = b->plan->sharding != PEN_SHARD_NONE && !tied && (copied || shares);
  if (weight->bf16_sharded != (shares && copied && !tied))
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "the copy of %s %s sharded over the replicas, but it must %sbe",
                            weight->name, weight->bf16_sharded ? "is" : "is not",
                            weight->bf16_sharded ? "not " : "");
  bool adds = has_training(b->plan) && !weight->frozen && pen_gradients_are_sharded(b->plan);
  if (weight->gradient_sharded != adds)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "the gradient of %s %s sharded over the replicas, but it must %sbe",
                            weight->name, adds ? "is not" : "is", adds ? "" : "not ");
  return weight->value_sharded == wanted ||
         pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "the value of %s %s sharded over the replicas, but %s", weight->name,
                          wanted ? "is not" : "is",
                          wanted ? "no program reads it there" : "it must be whole");
}

/* Whether another member of a group has all of what is sharded of a weight. */
static bool is_elsewhere(const struct pen_plan *plan, const struct pen_weight *weight,
                         uint32_t member) {
  return plan->sharding != PEN_SHARD_NONE && weight->sole_owner && weight->sole_owner != member + 1;
}

static void add_own_weight(const struct pen_rank_context *b, struct range_list *list,
                           uint32_t number, uint32_t member) {
  const struct pen_plan *plan = b->plan;
  const struct pen_weight *weight = &plan->weights[number];
  const uint64_t bytes = pen_stored_bytes(plan, weight, weight->gradient_sharded),
                 moment = pen_stored_bytes(plan, weight, plan->sharding != PEN_SHARD_NONE);
  const bool elsewhere = is_elsewhere(plan, weight, member);
  if (!weight->value_sharded || !elsewhere)
    add_range(list, weight->value_offset, pen_value_bytes(plan, number, PEN_F32), weight->name,
              "value");
  if (weight->bf16_offset != UINT64_MAX && !(weight->bf16_sharded && elsewhere))
    add_range(list, weight->bf16_offset, pen_value_bytes(plan, number, PEN_BF16), weight->name,
              "copy");
  if (weight->frozen || !has_training(plan)) return;
  if (!weight->gradient_sharded || !elsewhere)
    add_range(list, weight->gradient_offset, bytes, weight->name, "gradient");
  const uint32_t moments = elsewhere ? 0 : moments_of(plan, weight);
  if (moments > 0) add_range(list, weight->exp_avg_offset, moment, weight->name, "exp_avg");
  if (moments > 1) add_range(list, weight->exp_avg_sq_offset, moment, weight->name, "exp_avg_sq");
}

/* What the head of a tied matrix has of its own. */
static void add_ties(const struct pen_rank_context *b, struct range_list *list) {
  const struct pen_plan *plan = b->plan;
  for (uint32_t index = 0; index < pen_local_tie_count(plan); index++) {
    const struct pen_tie *tie = &plan->ties[index];
    const struct pen_weight *weight = &plan->weights[tie->weight];
    uint64_t bytes = pen_stored_bytes(plan, weight, weight->gradient_sharded);
    if (tie->rank == b->rank && weight->rank != b->rank)
      add_range(list, tie->value_offset, pen_value_bytes(plan, tie->weight, tie->dtype),
                weight->name, "the head's copy");
    if (tie->rank == b->rank && tie->gradient_offset != UINT64_MAX)
      add_range(list, tie->gradient_offset, bytes, weight->name, "the head's gradient");
  }
}

static void add_constants_and_losses(const struct pen_rank_context *b, struct range_list *list) {
  const struct pen_tensor *tensors = b->tables->tensors;
  for (uint32_t tensor = 0; tensor < b->tables->tensor_count; tensor++)
    if (b->use[tensor] == PEN_USE_CONSTANT)
      add_range(list, tensors[tensor].offset, tensors[tensor].bytes, tensors[tensor].name,
                "constant");
  const uint64_t losses = pen_loss_table_offset(b->plan, b->profile, b->rank);
  for (uint32_t n = 0; n < b->plan->router_count; n++) {
    const struct pen_router *router = &b->plan->routers[n];
    if (b->checked->rank_of[router->stage] == b->rank)
      add_range(list, router->offset, router->experts * sizeof(double), "a router", "the choices");
  }
  if (losses != UINT64_MAX)
    add_range(list, losses, pen_loss_entries(b->plan) * sizeof(double), "the loss table", "losses");
  if (b->memory->output_bytes)
    add_range(list, b->plan->output_offset, b->memory->output_bytes, "a step", "the outputs");
}

/* What struct pen_rank_memory reserves beside tensors. */
static void add_reserved(const struct pen_rank_context *b, struct range_list *list) {
  const struct pen_rank_memory *memory = b->memory;
  add_range(list, memory->partial_offset, memory->partial_bytes, "a microbatch", "the gradients");
  if (memory->exchange_bytes)
    add_range(list, memory->exchange_offset, memory->exchange_bytes, "the tensor ranks",
              "the slots");
  if (memory->device_control_bytes > 0)
    add_range(list, memory->staged_input_offset, memory->device_control_bytes, "a step",
              "the device control block");
  add_range(list, memory->audit_offset, memory->audit_bytes, "an op", "the audit memory");
  if (memory->muon_bytes)
    add_range(list, memory->muon_offset, memory->muon_bytes, "UPDATE", "the workspace");
  if (memory->snapshot_bytes)
    add_range(list, memory->snapshot_offset, memory->snapshot_bytes, "weights and moments",
              "the snapshot");
}

/* A snapshot is a copy of the rank's tensors in a checkpoint, each aligned. */
static bool check_snapshot(const struct pen_rank_context *b) {
  const struct pen_plan *plan = b->plan;
  uint64_t bytes = 0;
  for (uint32_t index = 0; index < b->own_weight_count; index++) {
    const struct pen_weight *weight = &plan->weights[b->own_weight[index]];
    bytes += pen_aligned(pen_stored_bytes(plan, weight, weight->value_sharded));
    bytes += moments_of(plan, weight) *
             pen_aligned(pen_stored_bytes(plan, weight, plan->sharding != PEN_SHARD_NONE));
  }
  return b->memory->snapshot_bytes == 0 || b->memory->snapshot_bytes == bytes ||
         pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "the snapshot has %llu bytes, not %llu",
                          (unsigned long long)b->memory->snapshot_bytes, (unsigned long long)bytes);
}

/* What is in the arena of a member of a shard group. */
static bool check_member(const struct pen_rank_context *b, uint32_t member) {
  struct range_list list = {.range =
                                pen_new(5 * (size_t)b->own_weight_count + b->tables->tensor_count +
                                            2 * (size_t)b->plan->tie_count + 9,
                                        sizeof *list.range)};
  for (uint32_t index = 0; index < b->own_weight_count; index++)
    add_own_weight(b, &list, b->own_weight[index], member);
  add_ties(b, &list);
  add_constants_and_losses(b, &list);
  add_reserved(b, &list);
  const bool fine = check_ranges(b, &list);
  pen_free(list.range);
  return fine;
}

/* The tensors of a stack have equally many elements. */
static bool check_stack(const struct pen_rank_context *b, const struct pen_weight *weight) {
  const uint32_t tensors = pen_tensor_count(weight);
  return (weight->count >= tensors && weight->count % tensors == 0) ||
         pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "counted: %s has %llu elements, which %u tensors do not divide",
                          weight->name, (unsigned long long)weight->count, tensors);
}

/* Members differ in what has a sole owner. */
bool pen_check_persistent(const struct pen_rank_context *b) {
  uint32_t members = 1;
  bool fine = true;
  for (uint32_t index = 0; index < b->own_weight_count && fine; index++) {
    const struct pen_weight *weight = &b->plan->weights[b->own_weight[index]];
    fine = check_stack(b, weight) && check_sharded(b, b->own_weight[index]) &&
           check_moments(b, weight);
    if (b->plan->sharding != PEN_SHARD_NONE && weight->sole_owner)
      members = pen_group_size(b->plan, PEN_SHARD);
  }
  fine = fine && check_snapshot(b);
  for (uint32_t member = 0; member < members && fine; member++) fine = check_member(b, member);
  return fine;
}

/* ---- tensors ---- */

/* The tensor at the address of a weight must have its name and size: else weights of one size could
 * be swapped unnoticed. `count`: the elements that the rank keeps. */
static bool set_use(struct pen_rank_context *b, uint32_t tensor, enum pen_use use, uint32_t number,
                    uint64_t count, const char *ending, const char *what) {
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  const struct pen_plan *plan = b->plan;
  const struct pen_weight *weight =
      &plan->weights[number < plan->weight_count ? number
                                                 : plan->ties[number - plan->weight_count].weight];
  size_t length = strlen(weight->name);
  if (strncmp(t->name, weight->name, length) != 0 || strcmp(t->name + length, ending) != 0 ||
      t->bytes != count * pen_dtype_bytes(t->dtype))
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                            "%s is at the address of the %s of %s", t->name, what, weight->name);
  b->use[tensor] = (uint8_t)use;
  b->weight[tensor] = number;
  return true;
}

/* The addresses of values, copies and gradients of the rank's weights, rising, each with the index
 * of the weight. */
static struct pen_keyed *list_addresses(const struct pen_rank_context *b, size_t *count) {
  struct pen_keyed *address = pen_new(3 * (size_t)b->own_weight_count + 1, sizeof *address);
  *count = 0;
  for (uint32_t index = 0; index < b->own_weight_count; index++) {
    uint32_t number = b->own_weight[index];
    const struct pen_weight *weight = &b->plan->weights[number];
    const uint64_t offset[] = {weight->value_offset, weight->bf16_offset, weight->gradient_offset};
    for (int k = 0; k < 3; k++)
      if (offset[k] != UINT64_MAX) address[(*count)++] = (struct pen_keyed){offset[k], number};
  }
  pen_sort(address, *count);
  return address;
}

/* The first address that is not below an offset. */
static size_t find_address(const struct pen_keyed *address, size_t count, uint64_t offset) {
  size_t low = 0;
  while (low < count) {
    size_t middle = (low + count) / 2;
    if (address[middle].key < offset)
      low = middle + 1;
    else
      count = middle;
  }
  return low;
}

/* Of a weight that a rank keeps whole, or of its shard, which only ALL_GATHER may read. */
static bool set_weight(struct pen_rank_context *b, uint32_t tensor, uint32_t number, bool sharded,
                       const char *ending, const char *what) {
  return set_use(b, tensor, sharded ? PEN_USE_SHARD : PEN_USE_WEIGHT, number,
                 kept_count(b->plan, &b->plan->weights[number], sharded), ending, what);
}

/* Whether an address is that of a weight, after it another's, with which it shares a place, and the
 * tensor is not of the name of the first. */
static bool is_of_another(const struct pen_plan *plan, const struct pen_tensor *t,
                          const struct pen_keyed *address, size_t left) {
  const char *name = plan->weights[address->index].name;
  return left > 1 && address[1].key == address->key &&
         plan->weights[address->index].sole_owner != 0 && strncmp(t->name, name, strlen(name)) != 0;
}

/* Finds the weight, or the head of a tied weight, whose value, copy or gradient is at the address
 * of a persistent tensor. */
static bool find_weight(struct pen_rank_context *b, uint32_t tensor,
                        const struct pen_keyed *address, size_t count) {
  const struct pen_plan *plan = b->plan;
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  for (size_t n = find_address(address, count, t->offset); n < count && address[n].key == t->offset;
       n++) {
    uint32_t number = address[n].index;
    const struct pen_weight *weight = &plan->weights[number];
    if (is_of_another(plan, t, &address[n], count - n)) continue;
    if (weight->bf16_offset == t->offset && t->dtype == PEN_BF16)
      return set_weight(b, tensor, number, weight->bf16_sharded, ".bf16", "copy");
    if (weight->value_offset == t->offset && t->dtype == PEN_F32)
      return set_weight(b, tensor, number, weight->value_sharded, "", "value");
    if (!weight->frozen && weight->gradient_offset == t->offset && t->dtype == PEN_F32)
      return set_use(b, tensor, PEN_USE_GRADIENT, number,
                     kept_count(plan, weight, weight->gradient_sharded), ".grad", "gradient");
  }
  for (uint32_t index = 0; index < pen_local_tie_count(plan); index++) {
    const struct pen_tie *tie = &plan->ties[index];
    const struct pen_weight *weight = &plan->weights[tie->weight];
    if (tie->rank != b->rank) continue;
    if (tie->value_offset == t->offset && tie->dtype == t->dtype)
      return set_use(b, tensor, PEN_USE_WEIGHT, tie->weight, weight->count,
                     tie->dtype == PEN_BF16 ? ".bf16" : "", "value");
    if (tie->gradient_offset == t->offset && t->dtype == PEN_F32)
      return set_use(b, tensor, PEN_USE_GRADIENT, plan->weight_count + index,
                     kept_count(plan, weight, weight->gradient_sharded), ".head.grad", "gradient");
  }
  return true;
}

/* Finds the sharded weight of a tensor that UNSHARD makes, by name. */
static bool find_unsharded(struct pen_rank_context *b, uint32_t tensor) {
  const struct pen_tensor *t = &b->tables->tensors[tensor];
  for (uint32_t index = 0; index < b->own_weight_count; index++) {
    uint32_t number = b->own_weight[index];
    const struct pen_weight *weight = &b->plan->weights[number];
    bool copy = t->dtype == PEN_BF16;
    size_t length = strlen(weight->name);
    if (strncmp(t->name, weight->name, length) != 0 ||
        strcmp(t->name + length, copy ? ".bf16" : "") != 0)
      continue;
    if (!(copy ? weight->bf16_sharded : weight->value_sharded && weight->bf16_offset == UINT64_MAX))
      continue;
    return set_use(b, tensor, PEN_USE_WEIGHT, number, weight->count, copy ? ".bf16" : "", "value");
  }
  return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "%s is all-gathered, but is not a sharded weight of the rank", t->name);
}

bool pen_find_weights(struct pen_rank_context *b) {
  size_t address_count;
  struct pen_keyed *address = list_addresses(b, &address_count);
  for (uint32_t index = 0; index < b->tables->tensor_count; index++) {
    uint8_t base = b->tables->tensors[index].base;
    if (base == PEN_BASE_PERSISTENT && !find_weight(b, index, address, address_count)) return false;
    const uint32_t router =
        base == PEN_BASE_PERSISTENT ? pen_router_at(b, b->tables->tensors[index].offset) : PEN_NONE;
    if (router != PEN_NONE && b->use[index] == PEN_USE_LOCAL &&
        b->tables->tensors[index].bytes == b->plan->routers[router].experts * sizeof(double))
      b->use[index] = PEN_USE_COUNTS;
    if (base == PEN_BASE_CACHE) b->use[index] = PEN_USE_CACHE;
    if (base == PEN_BASE_UNSHARDED && !find_unsharded(b, index)) return false;
  }
  pen_free(address);
  return true;
}

const char *pen_gradient_name(const struct pen_plan *plan, uint32_t weight) {
  if (weight < plan->weight_count) return plan->weights[weight].name;
  return pen_text("%s, the head's,",
                  plan->weights[plan->ties[weight - plan->weight_count].weight].name);
}
