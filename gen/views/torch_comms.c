/* torch_comms.c: --print=csv-comms: the lowered order in the notation of
 * torch.distributed.pipelining (format compute_comms of its _PipelineScheduleRuntime): a CSV with a
 * line a rank, in order.
 *
 * What PyTorch's runtime needs besides computation, sends and receives is where its own lowering
 * puts it:
 *
 *   sWAIT_SEND_Fm                     directly after the backward of s and m: the activation was
 *                                     sent by then
 *   sWAIT_SEND_Bm                     at the end of the step, in the order of the sends
 *   sREDUCE_GRAD, sWAIT_REDUCE_GRAD   after the last backward of s (B, or W)
 *   sUNSHARD                          where the plan has it, if weights are sharded
 *   sRESHARD                          where the plan has it, or after each later W of s before
 *                                     the next UNSHARD: our W seldom reads weights, PyTorch's
 *                                     needs them unsharded
 *
 * The plan's waits for messages have no counterpart: PyTorch waits for a receive where it is used.
 * A pair a|b is (a;b)OVERLAP_F_B. */
#include <stdio.h>

#include "gen/schedule/action_text.h"
#include "gen/views/views.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "runtime/plan/plan.h"

struct comms_writer {
  FILE *out;
  const struct pen_view *view;
  const char *separator; /* before the next action of the line */
  uint32_t *backwards;   /* [stage]: so far */
  uint32_t *reshard;     /* [stage]: the action after which RESHARD comes; 0: none */
};

static void write_word(struct comms_writer *writer, const char *word) {
  fprintf(writer->out, "%s%s", writer->separator, word);
  writer->separator = ",";
}

static void write_action(struct comms_writer *writer, const char *kind, uint32_t stage,
                         uint32_t microbatch) {
  write_word(writer, pen_text("%u%s%u", stage, kind, microbatch));
}

/* Does a stage send to another rank? */
static bool sends_message(const struct pen_view *view, uint32_t stage, bool forward) {
  const struct pen_partition *partition = view->partition;
  if (forward)
    return stage + 1 < partition->stage_count &&
           partition->rank_of[stage + 1] != partition->rank_of[stage];
  return stage > 0 && partition->rank_of[stage - 1] != partition->rank_of[stage];
}

/* The waits and reductions that follow a compute action. */
static void write_dependents(struct comms_writer *writer, int kind, uint32_t stage,
                             uint32_t microbatch) {
  bool backward = kind == PEN_B || kind == PEN_I;
  if (backward && sends_message(writer->view, stage, true))
    write_action(writer, "WAIT_SEND_F", stage, microbatch);
  if (kind != PEN_B && kind != PEN_W) return;
  if (++writer->backwards[stage] < writer->view->partition->microbatch_count) return;
  write_word(writer, pen_text("%uREDUCE_GRAD", stage));
  write_word(writer, pen_text("%uWAIT_REDUCE_GRAD", stage));
}

/* The last action for which PyTorch needs the weights that a RESHARD frees. */
static uint32_t last_with_weights(const struct pen_rank_program *rank, uint32_t index) {
  const struct pen_action *action = rank->actions;
  uint32_t last = index;
  for (uint32_t later = index + 1; later < rank->action_count; later++) {
    if (action[later].stage != action[index].stage) continue;
    if (action[later].kind == PEN_UNSHARD) break;
    if (action[later].kind == PEN_W) last = later;
  }
  return last;
}

/* RESHARD, if the action is the last that needs the weights of a stage. */
static void write_reshard(struct comms_writer *writer, uint32_t stage, uint32_t index) {
  if (writer->reshard[stage] == 0 || writer->reshard[stage] > index) return;
  write_word(writer, pen_text("%uRESHARD", stage));
  writer->reshard[stage] = 0;
}

/* Both halves of a pair, which are consecutive actions. */
static void write_pair(struct comms_writer *writer, const struct pen_action *pair) {
  char first[32], second[32];
  pen_action_format(first, pair[0].kind, pair[0].stage, pair[0].microbatch);
  pen_action_format(second, pair[1].kind, pair[1].stage, pair[1].microbatch);
  write_word(writer, pen_text("(%s;%s)OVERLAP_F_B", first, second));
  for (int half = 0; half < 2; half++)
    write_dependents(writer, pair[half].kind, pair[half].stage, pair[half].microbatch);
}

static void write_comms_line(struct comms_writer *writer, const struct pen_rank_program *rank) {
  char text[32];
  writer->separator = "";
  for (uint32_t index = 0; index < rank->action_count; index++) {
    const struct pen_action *action = &rank->actions[index];
    if (action->kind == PEN_UNSHARD) write_word(writer, pen_text("%uUNSHARD", action->stage));
    if (action->kind == PEN_RESHARD) {
      writer->reshard[action->stage] = last_with_weights(rank, index);
      write_reshard(writer, action->stage, index);
    }
    if (action->kind > PEN_RECV_B) continue; /* waits, and the end of the step */
    if (action->overlaps) {
      write_pair(writer, action);
      index++;
      for (int half = 0; half < 2; half++) write_reshard(writer, action[half].stage, index);
      continue;
    }
    write_word(writer, pen_action_format(text, action->kind, action->stage, action->microbatch));
    if (action->kind <= PEN_W)
      write_dependents(writer, action->kind, action->stage, action->microbatch);
    write_reshard(writer, action->stage, index);
  }
  for (uint32_t index = 0; index < rank->action_count; index++) {
    const struct pen_action *action = &rank->actions[index];
    if (action->kind == PEN_SEND_B ||
        (action->kind == PEN_SEND_F && writer->backwards[action->stage] == 0))
      write_action(writer, action->kind == PEN_SEND_F ? "WAIT_SEND_F" : "WAIT_SEND_B",
                   action->stage, action->microbatch);
  }
  fputs("\r\n", writer->out); /* as Python's csv module ends lines */
}

void pen_torch_comms(FILE *out, const struct pen_view *view) {
  uint32_t stages = view->partition->stage_count;
  struct comms_writer writer = {.out = out,
                                .view = view,
                                .backwards = pen_new(stages, sizeof(uint32_t)),
                                .reshard = pen_new(stages, sizeof(uint32_t))};
  for (uint32_t rank = 0; rank < view->plan->rank_count; rank++)
    write_comms_line(&writer, &view->plan->profiles[0].ranks[rank]);
}
