/* internal.h: the checks of the verifier, which verify.c runs in order. Each returns true, or notes
 * the first problem and returns false. */
#ifndef PEN_VERIFY_INTERNAL_H
#define PEN_VERIFY_INTERNAL_H

#include "gen/verify/action_index.h"
#include "gen/verify/problem.h"
#include "gen/verify/rank_context.h"
#include "gen/verify/verify.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/shard.h"

/* actions.c: the actions of all ranks; fills the indexes of `c`. */
bool pen_check_actions(struct pen_check_context *c);

/* tables.c: every table of a profile; fills contexts[rank]. */
bool pen_check_tables(const struct pen_check_context *c, const struct pen_plan *plan,
                      const struct pen_profile *profile, struct pen_rank_context *contexts);

/* messages.c: the messages and channels of a profile; the other tables were checked. */
bool pen_check_messages(const struct pen_check_context *c, const struct pen_plan *plan,
                        const struct pen_profile *profile);

/* muon.c: matrices that Muon updates are whole, and there is a workspace for the largest. */
bool pen_check_muon(const struct pen_rank_context *context);
/* audit.c: the audit memory holds the outputs of each op. */
bool pen_check_audit_memory(const struct pen_rank_context *context);
/* outputs.c: the outputs of a plan are kept to the end of a step; a compute action has the place of
 * those of its microbatch. */
bool pen_check_outputs(const struct pen_rank_context *context);
bool pen_check_outputs_frame(const struct pen_rank_context *context, uint32_t action);
/* router_losses.c: the rows of a plan are of its stages; a rank has their places, and its programs
 * write them. */
bool pen_check_router_loss_rows(const struct pen_plan *plan, struct pen_problem *problem);
bool pen_check_router_losses(const struct pen_rank_context *context);

/* router_counts.c: the rows of a plan are of its stages; F counts the choices of each router of its
 * stage where a profile trains, and no other program. pen_router_at(): the router of the rank whose
 * counts are at an address; PEN_NONE: none are. */
bool pen_check_router_rows(const struct pen_plan *plan, struct pen_problem *problem);
bool pen_check_router_counts(const struct pen_rank_context *context);
uint32_t pen_router_at(const struct pen_rank_context *context, uint64_t offset);
/* persistent.c: weights, gradients, moments, losses and constants of a rank are in the persistent
 * part and do not overlap. */
bool pen_check_persistent(const struct pen_rank_context *context);
/* persistent.c: the bytes of a weight's value (PEN_F32), or of its copy (PEN_BF16), on its rank: of
 * all, or of the largest shard; with the checksum that follows what SEND_V sends. */
uint64_t pen_value_bytes(const struct pen_plan *plan, uint32_t index, uint8_t dtype);
/* device_state.c: the elements of the largest shard. */
uint64_t pen_largest_shard(struct pen_division division);
/* persistent.c: the bytes of a weight's f32 elements on a rank: of all, or of the largest shard. */
uint64_t pen_stored_bytes(const struct pen_plan *plan, const struct pen_weight *weight,
                          bool sharded);
/* persistent.c: finds the weight of each persistent tensor: fills `use` and `weight`. The bases
 * were checked. */
bool pen_find_weights(struct pen_rank_context *context);
/* persistent.c: the name of the gradient of a weight, or of a head (weight_count + tie). */
const char *pen_gradient_name(const struct pen_plan *plan, uint32_t weight);

/* cache.c: the keys and values of a rank in a profile, whose tables were checked; those of a rank
 * in two profiles are the same. */
bool pen_check_cache(const struct pen_rank_context *context);
bool pen_check_same_cache(uint32_t rank, const struct pen_profile *one,
                          const struct pen_profile *other, struct pen_problem *problem);

/* moves.c: whether ops of that kind are exchanges between tensor ranks, or a part of one. */
bool pen_puts_values(int kind);
/* moves.c: the rows of a rank's collectives: indices, and the parts of exchanges; once the rest was
 * checked, what they move. */
bool pen_check_rows(const struct pen_rank_context *context);
bool pen_check_moves(const struct pen_rank_context *context);

/* replicas.c: the data-parallel collectives of a rank. */
bool pen_check_replicas(const struct pen_rank_context *context);

/* tied_weight.c, for a finished plan: the order of the actions of a tied weight, its addresses, its
 * messages. */
bool pen_check_tie_actions(const struct pen_check_context *c);
bool pen_check_ties(const struct pen_check_context *c, const struct pen_plan *plan);
bool pen_check_tie_message(const struct pen_check_context *c, const struct pen_plan *plan,
                           const struct pen_profile *profile, uint32_t rank, uint32_t action);
bool pen_check_add_tied_gradient(const struct pen_check_context *c, const struct pen_plan *plan,
                                 const struct pen_profile *profile, uint32_t rank, uint32_t action);
/* tied_weight.c: is a tied weight of the plan trained in a profile? */
bool pen_plan_adds_tied_gradient(const struct pen_plan *plan, int profile_kind);

/* arrivals.c: sets earliest[step][message]: how many actions of the receiver, counted over two
 * steps, are complete before the message may arrive. */
void pen_earliest_arrivals(const struct pen_check_context *c, const struct pen_profile *profile,
                           uint32_t *const earliest[2]);

/* memory.c: two steps of all ranks; fills the send hazards of `c`. `contexts` is [rank]. */
bool pen_check_memory(struct pen_check_context *c, const struct pen_rank_context *contexts);

/* gradient_sums.c: the microbatches, replicas and elements that a training profile sums. */
bool pen_check_gradient_sums(const struct pen_check_context *c);
/* gradients.c: lists the sets of programs that microbatches take; fills `stage_programs` of `c`. */
void pen_list_stage_programs(struct pen_check_context *c);
/* gradients.c: the programs of every stage compute the gradients of its forward. `checked` is
 * [profile_count]; each profile was checked by itself. */
bool pen_check_gradients(const struct pen_check_context *checked, uint32_t profile_count);

/* deadlock.c: one-sided puts; rendezvous with either number of lanes; rendezvous with one. */
bool pen_check_puts(const struct pen_check_context *c);
bool pen_check_rendezvous(const struct pen_check_context *c);
bool pen_check_lanes(const struct pen_check_context *c, bool one_lane_a_rank);

/* pointwise.c: the programs of element-wise ops, and their gradients; ops were checked. */
bool pen_check_pointwise(const struct pen_plan *plan, struct pen_problem *problem);

/* profiles.c: what profiles share; each was checked by itself. */
bool pen_check_profiles(const struct pen_plan *plan, struct pen_problem *problem);

/* device_state.c: the device control block of every arena; ops were checked. */
bool pen_check_device_control(const struct pen_plan *plan, struct pen_problem *problem);

/* checks.c, for verify.c and promela.c: all checks except deadlock, of bare actions or of one
 * profile of a finished plan. They fill `checked`. */
bool pen_check_lists(const struct pen_action_lists *lists, struct pen_problem *problem,
                     struct pen_check_context *checked);
bool pen_check_profile(const struct pen_plan *plan, const struct pen_profile *profile,
                       struct pen_problem *problem, struct pen_check_context *checked);

#endif
