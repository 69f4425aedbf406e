/* matrix_moves.c: the exchanges of UPDATE, by which each matrix of Muon whose splits are on several
 * tensor ranks comes to one of them, and back (rule "moved" of moves.c; see matrix_moves.h).
 *
 * What is in the workspace of UPDATE is proved by the order of the exchanges alone: one waits for
 * what all others have written, and begins when they have ended the one before. So splits come when
 * no owner computes, and go back when each rank has sent its own. */
#include "gen/verify/matrix_moves.h"

#include <string.h>

#include "gen/base/arena.h"
#include "runtime/plan/shard.h"

/* Which matrices have come, and who has one in the exchange. */
struct matrix_moves {
  bool *come; /* [weight], by the first split */
  bool *busy; /* [member of a shard group][tensor rank] */
};

/* A matrix of Muon that tensor ranks share, by its first split. */
static bool is_shared_matrix(const struct pen_rank_context *b, uint32_t weight) {
  const struct pen_weight *w = &b->plan->weights[weight];
  return w->rank == b->rank && w->optimizer == PEN_OPTIMIZER_MUON &&
         w->gradient_offset != UINT64_MAX && w->split_count > 1 && w->split == 0;
}

/* The splits of the first tensor rank, from their gradients to their places in the workspace of
 * UPDATE, or back; those of the others have the same places, and follow them there. */
static void need_splits(struct pen_moves *m, const struct pen_put *put, bool back) {
  const struct pen_plan *plan = m->b->plan;
  const struct pen_weight *w = &plan->weights[put->weight];
  const uint32_t local = pen_local_split_count(plan, w->split_count);
  const uint64_t bytes = pen_aligned(w->count * sizeof(float));
  for (uint32_t k = 0; k < local; k++) {
    struct pen_put needed = pen_put_in_place(PEN_PUT_WRITE, PEN_TENSOR, PEN_F32, put->weight + k,
                                             w[k].gradient_offset, false);
    needed.owner = put->owner;
    *(back ? &needed.from : &needed.to) = m->b->memory->muon_offset + k * bytes;
    *(back ? &needed.from_member : &needed.to_member) = local * bytes;
    pen_need_put(m, needed);
  }
}

/* The puts of an exchange follow from its matrices and their owners, of which each has one; so do
 * those of the next, which brings them back. */
static bool check_matrices(struct pen_moves *m, struct matrix_moves *of, uint32_t index,
                           bool back) {
  const struct pen_plan *plan = m->b->plan;
  const struct pen_collective *row = &m->b->tables->collectives[index];
  const uint32_t ranks = pen_group_size(plan, PEN_TENSOR), past = row->first_put + row->put_count;
  memset(of->busy, 0, (size_t)pen_group_size(plan, PEN_SHARD) * ranks * sizeof *of->busy);
  for (uint32_t i = row->first_put; i < past;) {
    const struct pen_put *put = &m->b->tables->puts[i];
    const uint32_t weight = put->weight;
    if (weight == PEN_NONE || !is_shared_matrix(m->b, weight) || of->come[weight] != back ||
        put->owner - 1 >= ranks)
      return PEN_MOVES_PROBLEM(m, "has put %u, which begins no matrix, or one that has come", i);
    const uint32_t data = pen_moments_are_sharded(plan) && plan->weights[weight].sole_owner
                              ? plan->weights[weight].sole_owner - 1
                              : 0;
    bool *busy = &of->busy[data * ranks + put->owner - 1];
    if (*busy) return PEN_MOVES_PROBLEM(m, "has put %u, of an owner that has another matrix", i);
    *busy = of->come[weight] = true;
    need_splits(m, put, back);
    i += pen_local_split_count(plan, plan->weights[weight].split_count);
  }
  m->owner = UINT64_MAX - index;
  return pen_check_collective_row(
      m, index + back,
      &(struct pen_collective){
          .group = PEN_TENSOR, .waits = true, .completes = true, .event = PEN_NONE});
}

bool pen_check_matrix_moves(struct pen_moves *m) {
  const struct pen_rank_program *tables = m->b->tables;
  const uint32_t first = tables->first_exchange, count = tables->exchange_count,
                 ranks = pen_group_size(m->b->plan, PEN_TENSOR);
  const bool shares = m->b->checked->profile_kind == PEN_TRAIN && ranks > 1;
  struct matrix_moves of = {
      pen_new((size_t)m->b->plan->weight_count + 1, sizeof(bool)),
      pen_new((size_t)pen_group_size(m->b->plan, PEN_SHARD) * ranks, sizeof(bool))};
  bool fine = true;
  m->what = "exchange";
  m->action = PEN_NONE;
  m->index = first;
  if (count % 2 || (count && !shares) || first > tables->collective_count ||
      count > tables->collective_count - first)
    return PEN_MOVES_PROBLEM(m, "of UPDATE, of %u, is not in the collectives", count);
  for (uint32_t i = 0; i < count && fine; i++) {
    m->index = first + i;
    fine = check_matrices(m, &of, first + i - i % 2, i % 2);
  }
  for (uint32_t n = 0; n < m->b->own_weight_count && fine && shares; n++)
    if (is_shared_matrix(m->b, m->b->own_weight[n]) && !of.come[m->b->own_weight[n]])
      fine = PEN_MOVES_PROBLEM(m, "brings %s to no owner",
                               m->b->plan->weights[m->b->own_weight[n]].name);
  pen_free(of.come);
  pen_free(of.busy);
  return fine;
}
