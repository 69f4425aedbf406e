/* picture_comms.c: --print=csv-comms: the lowered order in the notation of
 * torch.distributed.pipelining (format compute_comms of its _PipelineScheduleRuntime): a CSV with a
 * line a rank, in order.
 *
 * What PyTorch's runtime wants beside computation, sends and receives, and where its own lowering
 * puts it: sWAIT_SEND_Fm       right after the backward of s and m: by then the activation has gone
 *   sWAIT_SEND_Bm       at the end of the step, in the order of the sends
 *   sREDUCE_GRAD, sWAIT_REDUCE_GRAD   after the last backward of s (B, or W)
 *   sUNSHARD            where our own row stands, if weights are shared out
 *   sRESHARD            there, too, but behind each W of s that comes before the next UNSHARD: ours
 * seldom reads weights, theirs wants them whole Our own waits for messages have no word there: a
 * receive is awaited where it is used. A pair a|b is (a;b)OVERLAP_F_B. */
#include <stdio.h>

#include "gen/schedule/action_text.h"
#include "gen/views/view.h"
#include "gen/base/arena.h"
#include "gen/partition/partition.h"
#include "gen/lower/lower.h"
#include "runtime/plan/plan.h"

struct writer {
  FILE *out;
  const struct pen_view *picture;
  const char *gap;     /* before the next word of the line */
  uint32_t *backwards; /* [stage] so far */
  uint32_t *reshard;   /* [stage] the row behind which its weights are given up; 0: none to come */
};

static void put(struct writer *writer, const char *word) {
  fprintf(writer->out, "%s%s", writer->gap, word);
  writer->gap = ",";
}

static void put_action(struct writer *writer, const char *kind, uint32_t stage,
                       uint32_t microbatch) {
  put(writer, pen_text("%u%s%u", stage, kind, microbatch));
}

static bool sends(const struct pen_view *picture, uint32_t stage, bool forward) {
  const struct pen_partition *partition = picture->partition;
  if (forward)
    return stage + 1 < partition->stage_count &&
           partition->rank_of[stage + 1] != partition->rank_of[stage];
  return stage > 0 && partition->rank_of[stage - 1] != partition->rank_of[stage];
}

/* What follows a compute action. */
static void put_ends(struct writer *writer, int kind, uint32_t stage, uint32_t microbatch) {
  bool backward = kind == PEN_B || kind == PEN_I;
  if (backward && sends(writer->picture, stage, true))
    put_action(writer, "WAIT_SEND_F", stage, microbatch);
  if (kind != PEN_B && kind != PEN_W) return;
  if (++writer->backwards[stage] < writer->picture->partition->microbatch_count) return;
  put(writer, pen_text("%uREDUCE_GRAD", stage));
  put(writer, pen_text("%uWAIT_REDUCE_GRAD", stage));
}

/* The last row that PyTorch runs with the weights which the RESHARD of a row gives up. */
static uint32_t last_with_weights(const struct pen_lowered *lowered, uint32_t rank, uint32_t row) {
  const struct pen_action *action = lowered->action[rank];
  uint32_t last = row;
  for (uint32_t later = row + 1; later < lowered->count[rank]; later++) {
    if (action[later].stage != action[row].stage) continue;
    if (action[later].kind == PEN_UNSHARD) break;
    if (action[later].kind == PEN_W) last = later;
  }
  return last;
}

/* Gives up the weights of a stage, if the row is the last that wants them. */
static void put_reshard(struct writer *writer, uint32_t stage, uint32_t row) {
  if (writer->reshard[stage] == 0 || writer->reshard[stage] > row) return;
  put(writer, pen_text("%uRESHARD", stage));
  writer->reshard[stage] = 0;
}

/* Both halves of a pair, which are rows that follow each other. */
static void put_pair(struct writer *writer, const struct pen_action *pair) {
  char first[32], second[32];
  pen_action_text(first, pair[0].kind, pair[0].stage, pair[0].microbatch);
  pen_action_text(second, pair[1].kind, pair[1].stage, pair[1].microbatch);
  put(writer, pen_text("(%s;%s)OVERLAP_F_B", first, second));
  for (int half = 0; half < 2; half++)
    put_ends(writer, pair[half].kind, pair[half].stage, pair[half].microbatch);
}

static void put_rank(struct writer *writer, uint32_t rank) {
  const struct pen_lowered *lowered = writer->picture->lowered;
  char text[32];
  writer->gap = "";
  for (uint32_t row = 0; row < lowered->count[rank]; row++) {
    const struct pen_action *action = &lowered->action[rank][row];
    if (action->kind == PEN_UNSHARD) put(writer, pen_text("%uUNSHARD", action->stage));
    if (action->kind == PEN_RESHARD) {
      writer->reshard[action->stage] = last_with_weights(lowered, rank, row);
      put_reshard(writer, action->stage, row);
    }
    if (action->kind > PEN_RECV_B) continue; /* our waits, and the step's end */
    if (action->overlaps) {
      put_pair(writer, action);
      row++;
      for (int half = 0; half < 2; half++) put_reshard(writer, action[half].stage, row);
      continue;
    }
    put(writer, pen_action_text(text, action->kind, action->stage, action->microbatch));
    if (action->kind <= PEN_W) put_ends(writer, action->kind, action->stage, action->microbatch);
    put_reshard(writer, action->stage, row);
  }
  for (uint32_t row = 0; row < lowered->count[rank]; row++) {
    const struct pen_action *action = &lowered->action[rank][row];
    if (action->kind == PEN_SEND_B ||
        (action->kind == PEN_SEND_F && writer->backwards[action->stage] == 0))
      put_action(writer, action->kind == PEN_SEND_F ? "WAIT_SEND_F" : "WAIT_SEND_B", action->stage,
                 action->microbatch);
  }
  fputs("\r\n", writer->out); /* as Python's csv module ends a line */
}

void pen_view_comms(FILE *out, const struct pen_view *picture) {
  uint32_t stages = picture->partition->stage_count;
  struct writer writer = {.out = out,
                          .picture = picture,
                          .backwards = pen_new(stages, sizeof(uint32_t)),
                          .reshard = pen_new(stages, sizeof(uint32_t))};
  for (uint32_t rank = 0; rank < picture->order->rank_count; rank++) put_rank(&writer, rank);
}
