/* mock_device_play.c: executes what all ranks of all replicas issue, call by call (see
 * mock_device.h).
 *
 * Each stream of each rank is a list; the call at its head is executed when it can be. A FOLLOW
 * waits for the RECORD of its event that the host issued last before it; an AWAIT for its word. A
 * send or a receive first takes its place in the order of its pair (IN_TURN: when all that its rank
 * issued to NCCL before is done), and is done when the other side has taken the same place;
 * BUFFERED: a send at once. A sum is done when all ranks have reached it. A put writes and raises
 * its signal, a SIGNAL raises its signal, and a TAKE is done when there is one: BUFFERED, as many
 * as were raised; else one at a time, each when the previous one was taken. A GROUP takes all its
 * places at once, and is done when each of its receives has its send, and (not BUFFERED) each send
 * its receive. If no head can be executed and calls are left, there is a deadlock.
 *
 * It also reports: a word that is written again before it was read; a kernel that overwrites the
 * source of a message that is not sent; a message that overwrites a target in use; a kernel after a
 * WAIT whose message has not arrived; a signal that is taken for another message than it was raised
 * for; a kernel of a collective before all peers have ended the actions that it waits for; a send
 * or receive between peers or tensor ranks that matches that of another action or exchange, or of
 * another size; a kernel that reads slots that hold something else. */
#include "tests/emulation/mock_device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/comm/action_text.h"

struct head {
  uint32_t rank, stream;
  uint32_t *order; /* issues of the rank on that stream */
  uint32_t count;
  uint64_t position; /* of count * steps */
  bool posted;
};

struct named {
  const void *object;
  uint64_t
      value[2]; /* word: its value, and whether it is waited for at all; pair: sends and receives
                   that have taken their place; signal: raised and taken since the start */
};

struct play {
  const struct script *scripts;
  const struct bytes *bytes;
  enum nccl_model model;
  uint32_t steps, head_count;
  struct head *heads;
  struct named *named;
  uint32_t named_count;
  uint64_t **done;      /* [rank][issue] how many times executed */
  uint32_t **recorded;  /* [rank][issue] of a FOLLOW: the index of the RECORD */
  uint32_t **place;     /* [rank][issue] SEND, RECEIVE, SUM: place among the rank's calls to NCCL */
  uint32_t **object;    /* [rank][issue] index into named */
  uint32_t **touched;   /* [rank][action] kernels of a step */
  uint64_t **ran;       /* [rank][action] kernels executed */
  uint32_t *nccl_count; /* [rank] calls to NCCL in a step */
  uint64_t *nccl_done;  /* [rank] */
  uint64_t *left, *come; /* [pipeline][message] how many times */
  uint64_t *summed;      /* [rank] */
  uint64_t **given,
      **taken;      /* [from][to] sends and receives between peers that have taken their place */
  uint32_t **ended; /* [rank][action] the issue of the last kernel up to that action; PEN_NONE */
  struct slots *slots;
  uint64_t calls; /* done */
  struct pace pace;
  uint64_t seed;
};

static char wrong[300];
static const char *const call_names[] = {"RECORD", "FOLLOW", "MARK", "AWAIT",  "COPY",
                                         "KERNEL", "STORE",  "LOAD", "SEND",   "RECEIVE",
                                         "SUM",    "GROUP",  "PUT",  "SIGNAL", "TAKE"};

static const struct pen_profile *profile(void) { return mock_device_profile; }
static const struct pen_rank_program *program_of(uint32_t process) {
  return &profile()->ranks[pen_table_rank(&pen_plan, process)];
}

/* The counts of a message in the process's pipeline. */
static uint64_t *of_message(uint64_t *counts, uint32_t process, uint32_t message) {
  return &counts[pen_pipeline_index(&pen_plan, process) * profile()->message_count + message];
}

static const struct pen_channel *channel_of(uint32_t message) {
  return &profile()->channels[profile()->messages[message].channel];
}

/* The other process of the pipeline. */
static uint32_t beside(uint32_t process, uint32_t rank) {
  return pen_group_process(&pen_plan, process, PEN_PIPELINE, rank);
}

/* The peers of a process are so many processes apart. */
static uint32_t peers_apart(void) { return pen_plan.rank_count * pen_plan.tensor_ranks; }

static bool is_nccl(enum call call) { return call >= SEND; }

static void complain(const struct play *play, uint32_t rank, const struct issue *issue,
                     const char *what) {
  char row[64] = "the end";
  (void)play;
  if (issue->row < program_of(rank)->action_count) {
    pen_action_name(row, sizeof row, &program_of(rank)->actions[issue->row]);
  }
  if (wrong[0] == '\0') {
    snprintf(wrong, sizeof wrong, "rank %u, stream %u, %s at %s (message %d): %s", rank,
             issue->stream, call_names[issue->call], row, (int)issue->message, what);
  }
}

/* ---- errors ---- */

/* An action that reads peers' memory waits for as many of their actions; and if for none of this
 * step, for all of the last step that write. */
static void check_peers(const struct play *play, uint32_t rank, const struct issue *issue,
                        uint64_t step) {
  const struct pen_rank_program *program = program_of(rank);
  const struct pen_action *action = &program->actions[issue->row];
  if (issue->row == program->action_count || !pen_kind_is_collective(action->kind) ||
      play->scripts[rank].swap_count > 0) {
    return;
  }
  uint32_t last = program->action_count - 1;
  for (uint32_t row = 0, ended = 0; row < program->action_count && action->awaited_collective > 0;
       row++) {
    ended += pen_kind_is_collective(program->actions[row].kind) +
             pen_collectives_within(program, &program->actions[row]);
    if (ended >= action->awaited_collective) {
      last = row;
      break;
    }
  }
  const uint64_t needed = action->awaited_collective > 0 ? step + 1
                          : profile()->kind == PEN_TRAIN ? step
                                                         : 0;
  for (uint32_t p = rank % peers_apart(); p < pen_process_count(&pen_plan); p += peers_apart()) {
    const uint32_t kernel = play->ended[p][last];
    if (p != rank && kernel != PEN_NONE && play->done[p][kernel] < needed) {
      complain(play, rank, issue, "it runs before a peer has ended what it waits for");
    }
  }
}

static void check_kernel(struct play *play, uint32_t rank, const struct issue *issue,
                         uint64_t step) {
  if (play->bytes == NULL) {
    return;
  }
  const struct pen_rank_program *program = program_of(rank);
  for (uint32_t m = 0; m < profile()->message_count; m++) {
    if (channel_of(m)->from_rank == pen_table_rank(&pen_plan, rank) &&
        play->bytes->overwritten_by[m] == issue->row &&
        *of_message(play->left, rank, m) < step + 1) {
      complain(play, rank, issue, "it writes over a message that has not left");
    }
  }
  for (uint32_t r = 0; r < issue->row && r < program->action_count; r++) {
    const int kind = program->actions[r].kind;
    const bool waits =
        kind == PEN_WAIT_F || kind == PEN_WAIT_B || kind == PEN_WAIT_G || kind == PEN_WAIT_V;
    if (waits && *of_message(play->come, rank, program->actions[r].message) < step + 1) {
      complain(play, rank, issue, "it runs before a message that was waited for has come");
    }
  }
  check_peers(play, rank, issue, step);
}

/* The target of a message is written from now on. */
static void check_target(struct play *play, uint32_t rank, const struct issue *issue,
                         uint64_t step) {
  if (play->bytes == NULL) {
    return;
  }
  const uint32_t touch = play->bytes->last_touch[issue->message],
                 received = play->bytes->received_by[issue->message];
  const uint32_t to = beside(rank, channel_of(issue->message)->to_rank);
  if (touch != PEN_NONE &&
      play->ran[to][touch] < play->touched[to][touch] * (step + (touch < received))) {
    complain(play, rank, issue, "its target is still in use");
  }
  const struct pen_message *message = &profile()->messages[issue->message];
  for (uint32_t m = 0; m < profile()->message_count; m++) {
    const struct pen_message *other = &profile()->messages[m];
    const bool meets = other->source_offset < message->target_offset + message->bytes &&
                       message->target_offset < other->source_offset + other->bytes;
    if (beside(rank, channel_of(m)->from_rank) == to && meets &&
        *of_message(play->left, rank, m) < step + (play->bytes->sent_by[m] < received)) {
      complain(play, rank, issue, "a message is still to leave from its target");
    }
  }
}

/* ---- calls ---- */

/* PUT, SIGNAL, TAKE. */
static bool advance_signal(struct play *play, struct head *head, const struct issue *issue,
                           uint32_t index, uint64_t step) {
  struct named *signal = &play->named[play->object[head->rank][index]];
  const uint64_t place = step * play->nccl_count[head->rank] + play->place[head->rank][index];
  const bool sends = beside(head->rank, channel_of(issue->message)->from_rank) == head->rank;
  if ((play->model == IN_TURN && play->nccl_done[head->rank] != place) ||
      (issue->call == TAKE ? signal->value[1] == signal->value[0]
                           : play->model != BUFFERED && signal->value[1] < signal->value[0])) {
    return false;
  }
  signal->value[issue->call == TAKE]++;
  play->nccl_done[head->rank]++;
  if (issue->call == PUT) {
    check_target(play, head->rank, issue, step);
    ++*of_message(play->left, head->rank, issue->message);
  } else if (issue->call == TAKE && !sends) {
    ++*of_message(play->come, head->rank, issue->message);
    if (*of_message(play->left, head->rank, issue->message) <
        *of_message(play->come, head->rank, issue->message)) {
      complain(play, head->rank, issue, "another message's signal");
    }
  }
  return true;
}

/* A send, a receive or a sum: takes its place, then waits for the other ranks. */
static bool advance_nccl(struct play *play, struct head *head, const struct issue *issue,
                         uint32_t index, uint64_t step) {
  struct named *pair = &play->named[play->object[head->rank][index]];
  const uint64_t place = step * play->nccl_count[head->rank] + play->place[head->rank][index];
  if (!head->posted && play->model == IN_TURN && play->nccl_done[head->rank] != place) {
    return false;
  }
  if (!head->posted) {
    head->posted = true;
    play->summed[head->rank] += issue->call == SUM;
    pair->value[0] += issue->call == SEND;
    pair->value[1] += issue->call == RECEIVE;
    if (issue->call == RECEIVE) {
      check_target(play, head->rank, issue, step);
    }
  }
  bool through = issue->call == SEND ? play->model == BUFFERED || pair->value[1] >= pair->value[0]
                                     : pair->value[0] >= pair->value[1];
  for (uint32_t r = 0; r < pen_process_count(&pen_plan) && issue->call == SUM; r++) {
    through = (r == 0 || through) && play->summed[r] >= play->summed[head->rank];
  }
  if (through) {
    play->nccl_done[head->rank]++;
    if (issue->message != PEN_NONE) {
      ++*of_message(issue->call == SEND ? play->left : play->come, head->rank, issue->message);
    }
  }
  return through;
}

/* The n-th send to, or receive from, a peer in a script, step after step; null: it has none. */
static const struct swap *nth_swap(const struct script *script, uint32_t peer, bool sends,
                                   uint64_t n) {
  uint64_t count = 0, seen = 0;
  for (uint32_t i = 0; i < script->swap_count; i++) {
    count += script->swap[i].peer == peer && script->swap[i].sends == sends;
  }
  for (uint32_t i = 0; i < script->swap_count && count > 0; i++) {
    if (script->swap[i].peer == peer && script->swap[i].sends == sends && seen++ == n % count) {
      return &script->swap[i];
    }
  }
  return NULL;
}

/* The sends and receives of a group take their places; each must match one of the same action and
 * size. */
static void post_group(struct play *play, uint32_t rank, const struct issue *issue) {
  for (uint32_t i = 0; i < issue->swap_count; i++) {
    const struct swap *swap = &play->scripts[rank].swap[issue->first_swap + i];
    uint64_t *count = swap->sends ? &play->given[rank][swap->peer] : &play->taken[swap->peer][rank];
    const struct swap *other = nth_swap(&play->scripts[swap->peer], rank, !swap->sends, (*count)++);
    if (play->bytes != NULL && (other == NULL || other->row != swap->row ||
                                other->exchange != swap->exchange || other->bytes != swap->bytes)) {
      complain(play, rank, issue, "a swap that meets another one");
    }
  }
}

static bool advance_group(struct play *play, struct head *head, const struct issue *issue,
                          uint32_t index, uint64_t step) {
  const uint32_t rank = head->rank;
  const uint64_t place = step * play->nccl_count[rank] + play->place[rank][index];
  if (!head->posted && play->model == IN_TURN && play->nccl_done[rank] != place) {
    return false;
  }
  if (!head->posted) {
    head->posted = true;
    check_kernel(play, rank, issue, step); /* what it receives may be written from now on */
    post_group(play, rank, issue);
  }
  bool through = true;
  for (uint32_t i = 0; i < issue->swap_count; i++) {
    const uint32_t peer = play->scripts[rank].swap[issue->first_swap + i].peer;
    through = through &&
              (play->scripts[rank].swap[issue->first_swap + i].sends
                   ? play->model == BUFFERED || play->taken[rank][peer] >= play->given[rank][peer]
                   : play->given[peer][rank] >= play->taken[peer][rank]);
  }
  play->nccl_done[rank] += through;
  play->ran[rank][issue->row] += through;
  return through;
}

static bool advance_word(struct play *play, struct head *head, const struct issue *issue,
                         uint32_t index) {
  struct named *word = &play->named[play->object[head->rank][index]];
  if (issue->call == AWAIT) {
    return word->value[0] == issue->value;
  }
  if (play->bytes != NULL && word->value[1] != 0 && issue->value == 1 && word->value[0] == 1) {
    complain(play, head->rank, issue, "it writes a word again that was not read");
  }
  word->value[0] = issue->value;
  return true;
}

static void advance_slots(struct play *play, uint32_t rank, const struct issue *issue,
                          uint64_t step) {
  if (play->slots == NULL) {
    return;
  }
  if (issue->call == STORE) {
    mock_device_store(play->slots, &issue->slots, step);
  } else if (!mock_device_load(play->slots, &issue->slots, step)) {
    complain(play, rank, issue, "the slots of another exchange are read");
  }
}

static bool advance(struct play *play, struct head *head) {
  const uint32_t index = head->order[head->position % head->count];
  const uint64_t step = head->position / head->count;
  const struct issue *issue = &play->scripts[head->rank].issue[index];
  bool through = true;
  const bool stopped = play->pace.stop_behind != 0 && play->calls >= play->pace.stop_behind &&
                       head->rank == play->pace.stopped_rank;
  if (stopped &&
      (play->pace.stopped_stream == PEN_NONE || play->pace.stopped_stream == head->stream)) {
    return false;
  }
  if (issue->call == FOLLOW) {
    const uint32_t recorded = play->recorded[head->rank][index];
    through = recorded == PEN_NONE || play->done[head->rank][recorded] > step;
  } else if (issue->call == MARK || issue->call == AWAIT) {
    through = advance_word(play, head, issue, index);
  } else if (issue->call == GROUP) {
    through = advance_group(play, head, issue, index, step);
  } else if (issue->call > GROUP) {
    through = advance_signal(play, head, issue, index, step);
  } else if (is_nccl(issue->call)) {
    through = advance_nccl(play, head, issue, index, step);
  } else if (issue->call == COPY) {
    check_target(play, head->rank, issue, step);
    ++*of_message(play->left, head->rank, issue->message);
    ++*of_message(play->come, head->rank, issue->message);
  } else if (issue->call == KERNEL) {
    check_kernel(play, head->rank, issue, step);
    play->ran[head->rank][issue->row]++;
  } else if (issue->call == STORE || issue->call == LOAD) {
    advance_slots(play, head->rank, issue, step);
  }
  if (through) {
    play->done[head->rank][index]++;
    play->calls++;
    head->position++;
    head->posted = false;
  }
  return through;
}

/* ---- which stream continues ---- */

static bool is_over(const struct play *play, const struct head *head) {
  return head->position == (uint64_t)head->count * play->steps;
}

/* The lowest continues first. */
static uint32_t turn_of(const struct head *head, struct pace pace) {
  const bool side = head->stream >= 3; /* the first three streams are those of stream_state.c */
  return 2 * (head->rank == pace.slow_rank) + (side == pace.slow_sides);
}

/* Executes one call of the first stream that can continue. */
static bool advance_one(struct play *play, struct pace pace) {
  play->seed ^= play->seed << 13, play->seed ^= play->seed >> 7, play->seed ^= play->seed << 17;
  const uint32_t begin = (uint32_t)(play->seed >> 33) % play->head_count;
  for (uint32_t turn = 0; turn < (pace.seed == 0 ? 4u : 1u); turn++) {
    for (uint32_t i = 0; i < play->head_count; i++) {
      struct head *head = &play->heads[(begin + i) % play->head_count];
      if (!is_over(play, head) && (pace.seed != 0 || turn_of(head, pace) == turn) &&
          advance(play, head)) {
        return true;
      }
    }
  }
  return false;
}

/* ---- preparation ---- */

void *mock_device_array(size_t count, size_t bytes) {
  void *made = calloc(count + 1, bytes);
  if (made == NULL) {
    puts("Bail out! no memory");
    exit(1);
  }
  return made;
}

static uint32_t name_of(struct play *play, const void *object) {
  uint32_t i = 0;
  while (i < play->named_count && play->named[i].object != object) {
    i++;
  }
  if (i == play->named_count) {
    play->named[play->named_count++].object = object;
  }
  return i;
}

static void prepare_rank(struct play *play, uint32_t rank) {
  const struct script *script = &play->scripts[rank];
  const uint32_t rows = program_of(rank)->action_count;
  play->done[rank] = mock_device_array(script->count, sizeof **play->done);
  play->recorded[rank] = mock_device_array(script->count, sizeof **play->recorded);
  play->place[rank] = mock_device_array(script->count, sizeof **play->place);
  play->object[rank] = mock_device_array(script->count, sizeof **play->object);
  play->touched[rank] = mock_device_array(rows + 1u, sizeof **play->touched);
  play->ran[rank] = mock_device_array(rows + 1u, sizeof **play->ran);
  play->ended[rank] = mock_device_array(rows + 1u, sizeof **play->ended);
  play->given[rank] = mock_device_array(pen_process_count(&pen_plan), sizeof **play->given);
  play->taken[rank] = mock_device_array(pen_process_count(&pen_plan), sizeof **play->taken);
  for (uint32_t r = 0, i = 0, last = PEN_NONE; r <= rows; r++) {
    for (; i < script->count && script->issue[i].row <= r; i++) {
      last = script->issue[i].call == KERNEL ? i : last;
    }
    play->ended[rank][r] = last;
  }
  for (uint32_t i = 0; i < script->count; i++) {
    const struct issue *issue = &script->issue[i];
    play->place[rank][i] = play->nccl_count[rank];
    play->nccl_count[rank] += is_nccl(issue->call);
    play->touched[rank][issue->row] += issue->call == KERNEL || issue->call == GROUP;
    play->recorded[rank][i] = PEN_NONE;
    for (uint32_t k = 0; k < i && issue->call == FOLLOW; k++) {
      const bool same = script->issue[k].call == RECORD && script->issue[k].object == issue->object;
      play->recorded[rank][i] = same ? k : play->recorded[rank][i];
    }
    if (issue->call == MARK || issue->call == AWAIT || is_nccl(issue->call)) {
      play->object[rank][i] = name_of(play, issue->object);
      play->named[play->object[rank][i]].value[1] |= issue->call == AWAIT;
    }
  }
}

static void prepare_heads(struct play *play, uint32_t rank) {
  const struct script *script = &play->scripts[rank];
  for (uint32_t s = 0; s < script->stream_count; s++) {
    struct head head = {
        .rank = rank, .stream = s, .order = mock_device_array(script->count, sizeof *head.order)};
    for (uint32_t i = 0; i < script->count; i++) {
      if (script->issue[i].stream == s) {
        head.order[head.count++] = i;
      }
    }
    if (head.count > 0) {
      play->heads[play->head_count++] = head;
    } else {
      free(head.order);
    }
  }
}

static struct play *prepare(const struct script *scripts, const struct bytes *bytes,
                            enum nccl_model model, uint32_t steps) {
  const uint32_t ranks = pen_process_count(&pen_plan);
  struct play *play = mock_device_array(1, sizeof *play);
  size_t issues = 0, streams = 0;
  for (uint32_t r = 0; r < ranks; r++) {
    issues += scripts[r].count, streams += scripts[r].stream_count;
  }
  *play = (struct play){.scripts = scripts, .bytes = bytes, .model = model, .steps = steps};
  play->heads = mock_device_array(streams, sizeof *play->heads);
  play->named = mock_device_array(issues, sizeof *play->named);
  void *by_rank[] = {&play->done, &play->recorded, &play->place, &play->object, &play->touched,
                     &play->ran,  &play->ended,    &play->given, &play->taken};
  for (size_t i = 0; i < sizeof by_rank / sizeof *by_rank; i++) {
    *(void **)by_rank[i] = mock_device_array(ranks, sizeof(void *));
  }
  play->nccl_count = mock_device_array(ranks, sizeof *play->nccl_count);
  play->nccl_done = mock_device_array(ranks, sizeof *play->nccl_done);
  play->summed = mock_device_array(ranks, sizeof *play->summed);
  play->left = mock_device_array((size_t)pen_pipeline_count(&pen_plan) * profile()->message_count,
                                 sizeof *play->left);
  play->come = mock_device_array((size_t)pen_pipeline_count(&pen_plan) * profile()->message_count,
                                 sizeof *play->come);
  play->slots = bytes != NULL && pen_plan.tensor_ranks > 1 ? mock_device_slots_open(scripts) : NULL;
  for (uint32_t r = 0; r < ranks; r++) {
    prepare_rank(play, r);
    prepare_heads(play, r);
  }
  return play;
}

static void drop(struct play *play) {
  void **const by_rank[] = {(void **)play->done,   (void **)play->recorded, (void **)play->place,
                            (void **)play->object, (void **)play->touched,  (void **)play->ran,
                            (void **)play->ended,  (void **)play->given,    (void **)play->taken};
  for (size_t i = 0; i < sizeof by_rank / sizeof *by_rank; i++) {
    for (uint32_t r = 0; r < pen_process_count(&pen_plan); r++) {
      free(by_rank[i][r]);
    }
    free(by_rank[i]);
  }
  for (uint32_t i = 0; i < play->head_count; i++) {
    free(play->heads[i].order);
  }
  if (play->slots != NULL) {
    mock_device_slots_close(play->slots);
  }
  free(play->heads), free(play->named), free(play->nccl_count), free(play->nccl_done),
      free(play->summed), free(play->left), free(play->come);
  free(play);
}

/* What the host of a rank knows when nothing can continue, from the words and its own streams. */
static void stand(struct play *play, const struct head *head, struct standing *standing) {
  const uint32_t *told = play->scripts[head->rank].told;
  *standing = (struct standing){
      .step = head->position / head->count,
      .rows = (uint32_t)play->named[name_of(play, told)].value[0],
      .left = (uint32_t)play->named[name_of(play, told + 1)].value[0],
  };
}

const char *mock_device_play(const struct script *scripts, const struct bytes *bytes,
                             enum nccl_model model, struct pace pace, uint32_t steps) {
  struct play *play = prepare(scripts, bytes, model, steps);
  wrong[0] = '\0';
  play->pace = pace;
  play->seed = pace.seed == 0 ? 88172645463325252u : pace.seed;
  while (wrong[0] == '\0' && advance_one(play, pace)) {
  }
  for (uint32_t i = 0; i < play->head_count && wrong[0] == '\0'; i++) {
    struct head *head = &play->heads[i];
    if (pace.standing != NULL && head->stream == 0) {
      stand(play, head, &pace.standing[head->rank]);
    } else if (pace.standing == NULL && !is_over(play, head)) {
      complain(play, head->rank,
               &scripts[head->rank].issue[head->order[head->position % head->count]],
               "a deadlock: it waits for ever");
    }
  }
  drop(play);
  return wrong[0] == '\0' ? NULL : wrong;
}
