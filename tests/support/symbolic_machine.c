/* symbolic_machine.c: executes the actions of a plan on tagged memory. */
#include "tests/support/symbolic_machine.h"

enum { BLOCK_BYTES = PEN_ALIGNMENT_BYTES };

struct symbolic_machine {
  const struct pen_plan *plan;
  const struct pen_profile *const *sequence; /* [STEPS] the profile of each step */
  const struct pen_profile *profile;         /* of the rank at work */
  uint64_t **block;                          /* [rank][block] tag of the value there; 0: none */
  uint32_t *next, *step;                     /* [rank] */
  uint64_t **arrived, **credits;             /* [profile][channel] */
  uint32_t *published;                       /* [rank] steps */
  bool wrong;
};

/* The value that a tensor means: who makes it, for which microbatch, in which step. What comes from
 * a neighbour is the neighbour's. */
static uint64_t tag_of(const struct symbolic_machine *m, uint32_t rank, uint32_t tensor,
                       uint32_t microbatch, uint32_t step) {
  for (uint32_t stage = 0; stage < m->plan->stage_count; stage++) {
    const struct pen_stage *own = &m->profile->stages[stage];
    if (own->rank != rank) continue;
    if (stage > 0 && own->input == tensor)
      return tag_of(m, own[-1].rank, own[-1].output, microbatch, step);
    if (stage + 1 < m->plan->stage_count && own->output_gradient == tensor &&
        own[1].input_gradient != PEN_NONE)
      return tag_of(m, own[1].rank, own[1].input_gradient, microbatch, step);
  }
  return ((((uint64_t)rank << 16 | tensor) << 16 | microbatch) << 8 | step) + 1;
}

static uint64_t blocks_of(uint64_t bytes) { return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES; }

/* Reads or writes an operand of the activation part or the window. */
static void access_tensor(struct symbolic_machine *m, uint32_t rank, const struct pen_action *row,
                          uint32_t tensor, bool writes, bool garbage) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  if (tensor == PEN_NONE) return;
  const struct pen_tensor *t = &tables->tensors[tensor];
  if (t->base == PEN_BASE_PERSISTENT || t->base == PEN_BASE_LOSS) return;
  uint64_t first = (tables->frames[row->frame].base[t->base] + t->offset) / BLOCK_BYTES;
  uint64_t tag = tag_of(m, rank, tensor, row->microbatch, m->step[rank]);
  for (uint64_t at = first; at < first + blocks_of(t->bytes); at++) {
    if (writes)
      m->block[rank][at] = garbage ? 0 : tag;
    else if (m->block[rank][at] != tag)
      m->wrong = true;
  }
}

static void run_ops(struct symbolic_machine *m, uint32_t rank, const struct pen_action *row) {
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  const struct pen_program *program = &tables->programs[row->program];
  for (uint32_t index = program->first_op; index < program->first_op + program->op_count; index++) {
    const struct pen_op *op = &tables->ops[index];
    const struct pen_signature *signature = pen_signature_of(op->kind);
    access_tensor(m, rank, row, op->workspace, true, true);
    for (int k = 0; k < signature->input_count; k++)
      access_tensor(m, rank, row, op->operand[k], false, false);
    for (int k = signature->input_count; k < signature->operand_count; k++)
      access_tensor(m, rank, row, op->operand[k], true, false);
    for (int k = signature->input_count; k < signature->operand_count; k++)
      access_tensor(m, rank, row, op->operand[k], false, false);
  }
}

/* How many steps of a step's own profile were before it. */
static uint64_t steps_before(const struct symbolic_machine *m, uint32_t step) {
  uint64_t count = 0;
  for (uint32_t s = 0; s < step; s++) count += m->sequence[s] == m->sequence[step];
  return count;
}

/* Whether a rank may begin a step: at once after one of the same profile. */
static bool may_begin(const struct symbolic_machine *m, uint32_t step) {
  for (uint32_t rank = 0;
       step > 0 && m->sequence[step] != m->sequence[step - 1] && rank < m->plan->rank_count; rank++)
    if (m->step[rank] < step) return false;
  return true;
}

static void deliver_message(struct symbolic_machine *m, const struct pen_message *message) {
  const struct pen_channel *channel = &m->profile->channels[message->channel];
  for (uint64_t at = 0; at < blocks_of(message->bytes); at++)
    m->block[channel->to_rank][message->target_offset / BLOCK_BYTES + at] =
        m->block[channel->from_rank][message->source_offset / BLOCK_BYTES + at];
  m->arrived[m->profile - m->plan->profiles][message->channel]++;
}

static bool all_published(const struct symbolic_machine *m, uint32_t step) {
  for (uint32_t rank = 0; rank < m->plan->rank_count; rank++)
    if (m->published[rank] <= step) return false;
  return true;
}

/* Runs the next action of a rank; false if it blocks or is at its end. */
static bool run_next_row(struct symbolic_machine *m, uint32_t rank) {
  if (m->step[rank] == STEPS || (m->next[rank] == 0 && !may_begin(m, m->step[rank]))) return false;
  m->profile = m->sequence[m->step[rank]];
  const struct pen_rank_program *tables = &m->profile->ranks[rank];
  uint64_t step = steps_before(m, m->step[rank]),
           *arrived = m->arrived[m->profile - m->plan->profiles];
  uint64_t *credits = m->credits[m->profile - m->plan->profiles];
  const struct pen_action *row = &tables->actions[m->next[rank]];
  bool talks = row->kind >= PEN_SEND_F && row->kind <= PEN_WAIT_V;
  const struct pen_message *message = talks ? &m->profile->messages[row->message] : NULL;
  const struct pen_channel *channel = talks ? &m->profile->channels[message->channel] : NULL;
  if (row->kind <= PEN_W) run_ops(m, rank, row);
  if (pen_kind_sends(row->kind)) {
    if (message->credit != PEN_NONE &&
        credits[message->channel] < step * channel->credit_count + message->credit + 1)
      return false;
    deliver_message(m, message);
  }
  if (pen_kind_receives(row->kind)) credits[message->channel] += message->credit != PEN_NONE;
  if (pen_kind_waits(row->kind))
    if (arrived[message->channel] < step * channel->message_count + message->sequence + 1)
      return false;
  if (row->kind == PEN_PUBLISH) m->published[rank] = m->step[rank] + 1;
  if (row->kind == PEN_WAIT_NORM && !all_published(m, m->step[rank])) return false;
  if (++m->next[rank] == tables->action_count) {
    m->next[rank] = 0;
    m->step[rank]++;
  }
  return true;
}

bool machine_runs_all(const struct pen_plan *plan, const struct pen_profile *const *sequence,
                      uint64_t *seed) {
  uint32_t ranks = plan->rank_count, still = 0;
  struct symbolic_machine m = {.plan = plan,
                               .sequence = sequence,
                               .block = pen_new(ranks, sizeof *m.block),
                               .next = pen_new(ranks, 4),
                               .step = pen_new(ranks, 4),
                               .arrived = pen_new(plan->profile_count, sizeof *m.arrived),
                               .credits = pen_new(plan->profile_count, sizeof *m.credits),
                               .published = pen_new(ranks, 4)};
  for (uint32_t index = 0; index < plan->profile_count; index++) {
    m.arrived[index] = pen_new(plan->profiles[index].channel_count + 1, 8);
    m.credits[index] = pen_new(plan->profiles[index].channel_count + 1, 8);
  }
  for (uint32_t rank = 0; rank < ranks; rank++) /* what is rejected may reach beyond */
    m.block[rank] = pen_new(2 * blocks_of(plan->memory[rank].arena_bytes) + 1, 8);
  while (still < ranks && !m.wrong) {
    uint32_t rank = (uint32_t)draw(seed, ranks);
    bool moved = false;
    for (uint64_t turns = draw(seed, 4) ? 1 + draw(seed, 3) : 1 + draw(seed, 400);
         turns > 0 && run_next_row(&m, rank); turns--)
      moved = true;
    if (moved)
      still = 0;
    else
      for (still = 0, rank = 0; rank < ranks; rank++) still += !run_next_row(&m, rank);
  }
  for (uint32_t rank = 0; rank < ranks; rank++)
    if (m.step[rank] < STEPS) return false;
  return !m.wrong;
}

bool machine_runs(const struct pen_plan *plan, const struct pen_profile *profile, uint64_t *seed) {
  const struct pen_profile *sequence[STEPS];
  for (int step = 0; step < STEPS; step++) sequence[step] = profile;
  return machine_runs_all(plan, sequence, seed);
}
