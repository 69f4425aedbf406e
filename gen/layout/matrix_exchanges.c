/* matrix_exchanges.c: the exchanges of UPDATE, by which all splits of a matrix that Muon updates
 * come to one tensor rank, its owner, and what it has made of them back (see matrix_exchanges.h).
 *
 * At a time each tensor rank computes one matrix. So matrices go by their work: of those that a
 * data rank updates the first T belong to the T tensor ranks in turn, and so do the next. */
#include "gen/layout/matrix_exchanges.h"

#include <stdlib.h>

#include "gen/base/arena.h"
#include "gen/model/muon.h"
#include "runtime/plan/shard.h"

/* A matrix, by its first split, and the multiply-adds of an iteration. */
struct matrix {
  uint32_t weight;
  double work;
};

struct matrices {
  struct matrix *of;
  size_t count;
};

static double work_of(const struct pen_weight *weight) {
  return pen_muon_work(weight->tensor_dim[0], weight->tensor_dim[1] / weight->matrix_parts,
                       pen_tensor_elements(weight));
}

static int by_work(const void *one, const void *other) {
  const struct matrix *a = one, *b = other;
  if (a->work != b->work) return a->work < b->work ? 1 : -1;
  return a->weight < b->weight ? -1 : 1;
}

/* Those that member `owner` - 1 of a shard group updates; 0: each data rank does. */
static struct matrices matrices_of(const struct pen_collective_rows *rows, uint32_t owner) {
  const struct pen_plan *plan = rows->l->plan;
  struct matrices list = {pen_new(plan->weight_count + 1, sizeof *list.of), 0};
  for (uint32_t w = 0; w < plan->weight_count; w++) {
    const struct pen_weight *weight = &rows->l->weights[w];
    if (weight->rank == rows->rank && weight->optimizer == PEN_OPTIMIZER_MUON && !weight->frozen &&
        weight->split_count > 1 && weight->split == 0 &&
        (owner == 0 || weight->sole_owner == owner))
      list.of[list.count++] = (struct matrix){w, work_of(weight)};
  }
  qsort(list.of, list.count, sizeof *list.of, by_work);
  return list;
}

/* The splits of a matrix: from the tensor ranks to their places at the owner, or back. */
static void add_splits(struct pen_collective_rows *rows, uint32_t first, uint32_t owner,
                       bool back) {
  const struct pen_plan *plan = rows->l->plan;
  const struct pen_weight *weight = &rows->l->weights[first];
  const uint32_t local = pen_local_split_count(plan, weight->split_count);
  const uint64_t bytes = pen_aligned(weight->count * sizeof(float));
  for (uint32_t k = 0; k < local; k++) {
    const uint64_t place = rows->l->memory[rows->rank].muon_offset + k * bytes;
    struct pen_put put = {.kind = PEN_PUT_WRITE,
                          .group = PEN_TENSOR,
                          .dtype = PEN_F32,
                          .from_base = PEN_BASE_PERSISTENT,
                          .from = weight[k].gradient_offset,
                          .to_base = PEN_BASE_PERSISTENT,
                          .to = place,
                          .weight = first + k,
                          .owner = owner + 1,
                          .to_member = local * bytes};
    if (back) {
      put.to = put.from, put.from = place;
      put.from_member = put.to_member, put.to_member = 0;
    }
    pen_add_put(rows, put);
  }
}

uint32_t pen_add_matrix_exchanges(struct pen_collective_rows *rows) {
  const struct pen_plan *plan = rows->l->plan;
  const uint32_t tensor_ranks = pen_group_size(plan, PEN_TENSOR),
                 lists = pen_moments_are_sharded(plan) ? pen_group_size(plan, PEN_SHARD) : 1;
  struct matrices *list = pen_new(lists, sizeof *list);
  size_t most = 0;
  for (uint32_t m = 0; m < lists; m++) {
    list[m] = matrices_of(rows, lists > 1 ? m + 1 : 0);
    if (list[m].count > most) most = list[m].count;
  }
  const uint32_t pairs =
      tensor_ranks > 1 ? (uint32_t)((most + tensor_ranks - 1) / tensor_ranks) : 0;
  for (uint32_t i = 0; i < 2 * pairs; i++) {
    pen_add_collective(
        rows, (struct pen_collective){
                  .group = PEN_TENSOR, .waits = true, .completes = true, .together = true});
    for (uint32_t m = 0; m < lists; m++)
      for (uint32_t t = 0; t < tensor_ranks; t++) {
        const size_t n = (size_t)(i / 2) * tensor_ranks + t;
        if (n < list[m].count) add_splits(rows, list[m].of[n].weight, t, i % 2);
      }
  }
  for (uint32_t m = 0; m < lists; m++) pen_free(list[m].of);
  pen_free(list);
  return 2 * pairs;
}
