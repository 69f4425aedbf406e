/* cache.c: the cache of keys and values (base CACHE), whose content passes from step to step, and
 * between profiles.
 *
 * Other checks of memory follow values within one or two steps; a key is read as long as its text
 * grows. So the rules are about places: the cache is at the arena's end, where no profile of
 * generation has anything else (rank_context.h); other profiles may, since generation begins anew
 * after their steps. A profile over a cache has one microbatch; each of its attentions has keys and
 * values of its own, which no other operand reaches and which are in the cache's part of the arena;
 * and the n-th attention of a rank has the same places, divided into the same slots and positions,
 * in every profile; and there is a slot for each text in flight, of as many groups as the plan
 * says. Then what an attention reads was written by the same layer for the same slot and position.
 * That a text reads only positions that were written for it is up to the command generate. */
#include <string.h>

#include "gen/base/arena.h"
#include "gen/model/op_signature.h"
#include "gen/verify/internal.h"
#include "runtime/plan/plan.h"

/* Dims of an attention over a cache; from kv_heads on they say how the cache is divided. */
enum { BATCH = 0, SEQUENCE = 1, DIVISION = 3, SLOTS = 6, POSITIONS = 7 };

static bool attends(const struct pen_op *op) {
  return op->kind == PEN_OP_ATTENTION_CACHED || op->kind == PEN_OP_ATTENTION_CACHED_QKV;
}

/* Its operand: 0: keys, 1: values. */
static int operand_of(const struct pen_op *op, int k) {
  return pen_signature_operand(pen_signature_of(op->kind), k ? "values" : "keys");
}

/* The keys and values of an attention of a rank, by address. */
struct cached_attention {
  uint64_t first[2], past[2];
  const struct pen_op *op;
  uint32_t stage;
};

/* The attentions over a cache that the actions of a rank run, in their order. Returns how many. */
static size_t list_caches(const struct pen_rank_program *tables, struct cached_attention **list) {
  size_t count = 0;
  *list = NULL;
  for (uint32_t index = 0; index < tables->action_count; index++) {
    const struct pen_action *action = &tables->actions[index];
    if (action->kind != PEN_F) continue;
    const struct pen_program *program = &tables->programs[action->program];
    for (uint32_t n = program->first_op; n < program->first_op + program->op_count; n++) {
      const struct pen_op *op = &tables->ops[n];
      if (!attends(op)) continue;
      struct cached_attention cache = {.op = op, .stage = action->stage};
      for (int k = 0; k < 2; k++) {
        const struct pen_tensor *tensor = &tables->tensors[op->operand[operand_of(op, k)]];
        cache.first[k] = tables->frames[action->frame].base[tensor->base] + tensor->offset;
        cache.past[k] = cache.first[k] + tensor->bytes;
      }
      PEN_RESERVE(*list, count + 1);
      (*list)[count++] = cache;
    }
  }
  return count;
}

/* Only keys and values are in the cache, and they are nowhere else. */
static bool check_operands(const struct pen_rank_context *b) {
  for (uint32_t index = 0; index < b->tables->op_count; index++) {
    const struct pen_op *op = &b->tables->ops[index];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    for (int k = 0; k <= signature->operand_count; k++) {
      uint32_t tensor = k < signature->operand_count ? op->operand[k] : op->workspace;
      bool wanted = attends(op) && (k == operand_of(op, 0) || k == operand_of(op, 1));
      if (tensor == PEN_NONE) continue;
      if ((b->tables->tensors[tensor].base == PEN_BASE_CACHE) != wanted)
        return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                                "op %u (%s) has %s, which is %s the cache", index, signature->kind,
                                b->tables->tensors[tensor].name, wanted ? "outside" : "in");
    }
  }
  return true;
}

static bool check_place(const struct pen_rank_context *b, const struct cached_attention *cache,
                        int k) {
  uint64_t first = b->memory->cache_offset, past = first + b->memory->cache_bytes;
  return (cache->first[k] >= first && cache->past[k] >= cache->first[k] && cache->past[k] <= past &&
          cache->first[k] % PEN_ALIGNMENT_BYTES == 0) ||
         pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                          "stage %u has %s at %llu, outside the cache", cache->stage,
                          b->tables->tensors[cache->op->operand[operand_of(cache->op, k)]].name,
                          (unsigned long long)cache->first[k]);
}

static bool check_disjoint(const struct pen_rank_context *b, const struct cached_attention *one,
                           int i, const struct cached_attention *other, int j) {
  return one->first[i] >= other->past[j] || other->first[j] >= one->past[i] ||
         pen_problem_note(
             b->checked->problem, b->rank, PEN_NONE,
             "%s of stage %u and %s of stage %u share bytes of the cache",
             b->tables->tensors[one->op->operand[operand_of(one->op, i)]].name, one->stage,
             b->tables->tensors[other->op->operand[operand_of(other->op, j)]].name, other->stage);
}

bool pen_check_cache(const struct pen_rank_context *b) {
  struct cached_attention *list;
  if (!check_operands(b)) return false;
  size_t count = list_caches(b->tables, &list);
  if (count > 0 && b->profile->kind != PEN_CACHED)
    return pen_problem_note(b->checked->problem, b->rank, PEN_NONE, "%s has no cache",
                            b->profile->name);
  bool fine = true;
  for (size_t n = 0; n < count && fine; n++) {
    const int64_t *dim = list[n].op->dim;
    if (dim[BATCH] != (int64_t)b->profile->slots ||
        dim[SEQUENCE] != (int64_t)b->profile->sequence ||
        dim[BATCH] * (int64_t)b->plan->generated_groups > dim[SLOTS] ||
        dim[SEQUENCE] > dim[POSITIONS])
      return pen_problem_note(b->checked->problem, b->rank, PEN_NONE,
                              "an attention of stage %u has %lld texts of %lld tokens, of %u "
                              "groups, and a cache for %lld of %lld",
                              list[n].stage, (long long)dim[BATCH], (long long)dim[SEQUENCE],
                              b->plan->generated_groups, (long long)dim[SLOTS],
                              (long long)dim[POSITIONS]);
    for (int k = 0; k < 2 && fine; k++) fine = check_place(b, &list[n], k);
    fine = fine && check_disjoint(b, &list[n], 0, &list[n], 1);
    for (size_t other = 0; other < n; other++)
      for (int k = 0; k < 4 && fine; k++)
        fine = check_disjoint(b, &list[n], k / 2, &list[other], k % 2);
  }
  pen_free(list);
  return fine;
}

static bool is_same_cache(const struct cached_attention *one,
                          const struct cached_attention *other) {
  return one->stage == other->stage && one->op->dtype == other->op->dtype &&
         memcmp(one->first, other->first, sizeof one->first) == 0 &&
         memcmp(one->op->dim + DIVISION, other->op->dim + DIVISION,
                (POSITIONS + 1 - DIVISION) * sizeof *one->op->dim) == 0;
}

bool pen_check_same_cache(uint32_t rank, const struct pen_profile *one,
                          const struct pen_profile *other, struct pen_problem *problem) {
  struct cached_attention *first, *second;
  if (one->kind != PEN_CACHED || other->kind != PEN_CACHED) return true;
  size_t count = list_caches(&one->ranks[rank], &first);
  bool fine = list_caches(&other->ranks[rank], &second) == count;
  for (size_t n = 0; n < count && fine; n++) fine = is_same_cache(&first[n], &second[n]);
  pen_free(first);
  pen_free(second);
  return fine || pen_problem_note(problem, rank, PEN_NONE, "%s and %s have different caches",
                                  one->name, other->name);
}
