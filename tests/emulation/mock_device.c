/* mock_device.c: the order in which a plan's calls are issued to CUDA and to NCCL, replayed
 * without either (see mock_device.h): linked with a plan, by replay.t. Prints TAP lines; the
 * script counts them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/exec.h"
#include "tests/emulation/mock_device.h"

enum { STEPS = 3, SEEDS = 6, COUPLES_MOST = 100, STALLS = 300 };

static unsigned tests_run;
static int failed;
static const char *const link_names[LINKS] = {"ipc", "nccl", "nccl by puts"};
static const char *const model_names[NCCL_MODELS] = {
    "NCCL buffers", "sends wait for receives, puts for waits", "in the order of the capture"};

static void result(bool passed, const char *link, const char *model, const char *what,
                   const char *why) {
  printf("%sok %u - %s, %s: %s, %s: %s\n", passed ? "" : "not ", ++tests_run, pen_plan.name,
         mock_device_profile->name, link, model, what);
  if (!passed && why != NULL) {
    printf("# %s\n", why);
  }
  failed |= !passed;
}

/* The first error at any speed: each rank late, messages early and late, random orders. */
static const char *play_all(const struct script *scripts, const struct bytes *bytes,
                            enum nccl_model model) {
  const char *why = NULL;
  const uint32_t processes = pen_process_count(&pen_plan);
  for (uint32_t r = 0; r <= processes && why == NULL; r++) {
    for (int sides = 0; sides < 2 && why == NULL; sides++) {
      why = mock_device_play(
          scripts, bytes, model,
          (struct pace){.slow_rank = r == processes ? PEN_NONE : r, .slow_sides = sides}, STEPS);
    }
  }
  for (uint64_t seed = 1; seed <= SEEDS && why == NULL; seed++) {
    why = mock_device_play(scripts, bytes, model,
                           (struct pace){.slow_rank = PEN_NONE, .seed = seed * 0x9e3779b97f4a7c15u},
                           STEPS);
  }
  return why;
}

/* ---- scripts with errors ---- */

static struct issue *copy_of(const struct script *script) {
  struct issue *kept = malloc((script->count + 1) * sizeof *kept);
  if (kept == NULL) {
    exit(1);
  }
  memcpy(kept, script->issue, script->count * sizeof *kept);
  return kept;
}

static void put_back(struct script *script, struct issue *kept) {
  memcpy(script->issue, kept, script->count * sizeof *kept);
  free(kept);
}

/* What the action issues: its first issue, and how many. */
static uint32_t issues_of(const struct script *script, uint32_t row, uint32_t *count) {
  uint32_t first = 0;
  while (first < script->count && script->issue[first].row != row) {
    first++;
  }
  *count = 0;
  while (first + *count < script->count && script->issue[first + *count].row == row) {
    ++*count;
  }
  return first;
}

/* Moves what `row` issues before what `other` issues, which is earlier in the script. */
static void move_up(struct script *script, uint32_t row, uint32_t other) {
  uint32_t count, ignored;
  const uint32_t from = issues_of(script, row, &count), to = issues_of(script, other, &ignored);
  struct issue *kept = copy_of(script);
  if (from > to && from < script->count) {
    memcpy(&script->issue[to], &kept[from], count * sizeof *kept);
    memcpy(&script->issue[to + count], &kept[to], (from - to) * sizeof *kept);
  }
  free(kept);
}

static bool communicates(int kind) { return kind > PEN_W && kind < PEN_NORM; }

/* Swaps two successive actions of messages, one pair of them at a time, at most COUPLES_MOST.
 * Counts the deadlocks of each model. */
static uint32_t count_deadlocks(struct script *scripts, const bool *models,
                                uint32_t found[NCCL_MODELS]) {
  uint32_t tried = 0, seen = 0;
  const uint32_t stride =
      pen_plan.profiles[0].message_count * 3 / COUPLES_MOST + 1; /* three actions a message */
  for (uint32_t r = 0; r < pen_plan.rank_count; r++) {
    const struct pen_rank_program *program = &pen_plan.profiles[0].ranks[r];
    for (uint32_t row = 0; row + 1 < program->action_count; row++) {
      if (communicates(program->actions[row].kind) &&
          communicates(program->actions[row + 1].kind) && seen++ % stride == 0) {
        struct script *script = &scripts[r * pen_plan.tensor_ranks];
        struct issue *kept = copy_of(script);
        move_up(script, row + 1, row);
        tried++;
        for (int m = 0; m < NCCL_MODELS; m++) {
          found[m] +=
              models[m] && mock_device_play(scripts, NULL, m, (struct pace){.slow_rank = PEN_NONE},
                                            STEPS) != NULL;
        }
        put_back(script, kept);
      }
    }
  }
  return tried;
}

/* A rank that waits for the answer to a message before it sends the message: on rank 0, RECV and
 * WAIT of the first gradient come before the first SEND. */
static void wait_before_send(struct script *script) {
  const struct pen_rank_program *program = &pen_plan.profiles[0].ranks[0];
  uint32_t sent = 0, waited, received = 0;
  while (program->actions[sent].kind != PEN_SEND_F) { /* rank 0 has the first stage */
    sent++;
  }
  for (waited = sent; program->actions[waited].kind != PEN_WAIT_B; waited++) {
  }
  while (program->actions[received].kind != PEN_RECV_B ||
         program->actions[received].message != program->actions[waited].message) {
    received++;
  }
  move_up(script, received, sent);
  move_up(script, waited, sent);
}

/* Compute actions no longer wait for pending sends. Returns whether one of them overwrites the
 * source of a message. */
static bool forget_to_wait(struct script *scripts, const struct bytes *bytes) {
  bool any = false;
  for (uint32_t m = 0; m < pen_plan.profiles[0].message_count; m++) {
    any = any || bytes->overwritten_by[m] != PEN_NONE;
  }
  for (uint32_t r = 0; r < pen_process_count(&pen_plan); r++) {
    const struct pen_rank_program *program =
        &pen_plan.profiles[0].ranks[pen_table_rank(&pen_plan, r)];
    for (uint32_t i = 0; i < scripts[r].count; i++) {
      struct issue *issue = &scripts[r].issue[i];
      if (issue->call == FOLLOW && issue->stream == 0 && issue->row < program->action_count &&
          program->actions[issue->row].kind <= PEN_W) {
        issue->call = RECORD;
        issue->object = NULL;
      }
    }
  }
  return any;
}

/* Puts no longer wait for credits: the script has none. Returns whether there was one. */
static bool forget_credits(struct script *scripts) {
  bool any = false;
  for (uint32_t r = 0; r < pen_process_count(&pen_plan); r++) {
    for (uint32_t i = 0; i < scripts[r].count; i++) {
      struct issue *issue = &scripts[r].issue[i];
      const bool sends =
          issue->message !=
              PEN_NONE && /* a credit is taken by the sender and given by the receiver */
          pen_plan.profiles[0]
                  .channels[pen_plan.profiles[0].messages[issue->message].channel]
                  .from_rank == pen_table_rank(&pen_plan, r);
      if (issue->call == SIGNAL || (issue->call == TAKE && sends)) {
        issue->call = RECORD;
        issue->object = NULL;
        any = true;
      }
    }
  }
  return any;
}

/* A put is issued too early: a rank's first two messages over one pair are swapped, with their
 * signals. Returns whether there are two. */
static bool change_puts(struct script *script) {
  struct issue *first = NULL;
  for (uint32_t i = 0; i < script->count; i++) {
    struct issue *issue = &script->issue[i];
    if (issue->call == PUT && first == NULL) {
      first = issue;
    } else if (issue->call == PUT && issue->object == first->object) {
      const uint32_t message = issue->message;
      issue->message = first->message;
      first->message = message;
      return true;
    }
  }
  return false;
}

/* Errors that only puts have. Not every plan needs the credits that it gives: two ranks may learn
 * of each other in another way. replay.t counts. */
static void test_broken_puts(struct script *scripts, const struct bytes *bytes) {
  const uint32_t processes = pen_process_count(&pen_plan);
  struct issue **kept = malloc(processes * sizeof *kept), *first = copy_of(&scripts[0]);
  if (kept == NULL) {
    exit(1);
  }
  for (uint32_t r = 0; r < processes; r++) {
    kept[r] = copy_of(&scripts[r]);
  }
  const bool credits = forget_credits(scripts);
  const char *why = credits ? play_all(scripts, bytes, BUFFERED) : NULL;
  printf("# credits are %s: %s\n",
         why != NULL ? "needed"
         : credits   ? "given"
                     : "not given",
         why == NULL ? "nothing" : why);
  for (uint32_t r = 0; r < processes; r++) {
    put_back(&scripts[r], kept[r]);
  }
  free(kept);
  if (change_puts(&scripts[0])) {
    why = play_all(scripts, bytes, BUFFERED);
    result(why != NULL, link_names[LINK_PUTS], model_names[BUFFERED],
           "two puts that change places are found", NULL);
    printf("# %s\n", why == NULL ? "nothing" : why);
  }
  put_back(&scripts[0], first);
}

static void test_broken(struct script *scripts, const struct bytes *bytes, int link,
                        const bool *models) {
  const struct pace messages_late = {.slow_rank = PEN_NONE, .slow_sides = true};
  uint32_t found[NCCL_MODELS] = {0}, tried = count_deadlocks(scripts, models, found);
  printf("# %s: %u couples of rows changed about; deadlocks: %u, %u, %u\n", link_names[link], tried,
         found[0], found[1], found[2]);
  if (link != LINK_IPC && tried > 0) {
    result(found[BUFFERED] <= found[RENDEZVOUS] && found[RENDEZVOUS] <= found[IN_TURN] &&
               found[IN_TURN] > 0,
           link_names[link], "rows changed about", "the stricter NCCL is, the more deadlocks",
           NULL);
  }
  if (pen_plan.profiles[0].message_count == 0) {
    return;
  }
  struct issue *kept = copy_of(&scripts[0]);
  wait_before_send(&scripts[0]);
  for (int m = 0; m < NCCL_MODELS; m++) {
    if (models[m]) {
      const char *why = mock_device_play(scripts, NULL, m, messages_late, STEPS);
      result(why != NULL, link_names[link], model_names[m],
             "a wait for the answer before the message is a deadlock", NULL);
      printf("# %s\n", why == NULL ? "nothing" : why);
    }
  }
  put_back(&scripts[0], kept);
  if (forget_to_wait(scripts, bytes)) {
    const char *why = mock_device_play(scripts, bytes, BUFFERED, messages_late, STEPS);
    why = why == NULL && models[RENDEZVOUS]
              ? mock_device_play(scripts, bytes, RENDEZVOUS, messages_late, STEPS)
              : why;
    result(why != NULL, link_names[link], "no wait",
           "what is written over before it has left is found", NULL);
    printf("# %s\n", why == NULL ? "nothing" : why);
  }
}

/* ---- the exchange between replicas ---- */

static bool swaps(int kind) {
  return kind == PEN_REDUCE_SCATTER || kind == PEN_REDUCE_GROUPS || kind == PEN_GATHER_GROUPS ||
         kind == PEN_ALL_GATHER_GRAD || kind == PEN_ALL_GATHER_WEIGHT || kind == PEN_UNSHARD;
}

/* Swaps two successive actions that exchange data with peers, on one rank of the last replica, one
 * pair of actions at a time. Returns how many pairs there are; counts those that are found to be
 * wrong. */
static uint32_t cross_exchange(struct script *scripts, const struct bytes *bytes,
                               enum nccl_model model, uint32_t *found) {
  uint32_t tried = 0;
  for (uint32_t r = pen_process_count(&pen_plan) - pen_plan.rank_count * pen_plan.tensor_ranks;
       r < pen_process_count(&pen_plan); r++) {
    const struct pen_rank_program *program =
        &pen_plan.profiles[0].ranks[pen_table_rank(&pen_plan, r)];
    for (uint32_t row = 0; row + 1 < program->action_count; row++) {
      if (swaps(program->actions[row].kind) && swaps(program->actions[row + 1].kind)) {
        struct issue *kept = copy_of(&scripts[r]);
        move_up(&scripts[r], row + 1, row);
        tried++;
        *found += mock_device_play(scripts, bytes, model, (struct pace){.slow_rank = PEN_NONE},
                                   STEPS) != NULL;
        put_back(&scripts[r], kept);
      }
    }
  }
  return tried;
}

/* A script in which each send or receive is a call of its own, without groups. */
static struct script ungrouped(const struct script *script) {
  struct script made = *script;
  made.count = 0;
  made.issue = calloc(script->count + script->swap_count + 1, sizeof *made.issue);
  for (uint32_t i = 0; made.issue != NULL && i < script->count; i++) {
    const uint32_t parts = script->issue[i].call == GROUP ? script->issue[i].swap_count : 1;
    for (uint32_t k = 0; k < parts; k++) {
      made.issue[made.count] = script->issue[i];
      made.issue[made.count].first_swap += k;
      made.issue[made.count++].swap_count = 1;
    }
  }
  return made;
}

/* Peers that all send before they receive wait for each other if NCCL does not buffer. */
static const char *play_ungrouped(const struct script *scripts, enum nccl_model model) {
  struct script *apart = calloc(pen_process_count(&pen_plan), sizeof *apart);
  for (uint32_t r = 0; apart != NULL && r < pen_process_count(&pen_plan); r++) {
    apart[r] = ungrouped(&scripts[r]);
  }
  const char *why = apart == NULL ? NULL
                                  : mock_device_play(apart, NULL, model,
                                                     (struct pace){.slow_rank = PEN_NONE}, STEPS);
  for (uint32_t r = 0; apart != NULL && r < pen_process_count(&pen_plan); r++) {
    free(apart[r].issue);
  }
  free(apart);
  return why;
}

/* The waits for one rank's action words are left out. */
static bool forget_peers(struct script *script) {
  bool any = false;
  for (uint32_t i = 0; i < script->count; i++) {
    struct issue *issue = &script->issue[i];
    if (issue->call == AWAIT && issue->row < script->vm->program->action_count &&
        swaps(script->vm->program->actions[issue->row].kind)) {
      issue->call = RECORD;
      issue->object = NULL;
      any = true;
    }
  }
  return any;
}

static void test_exchange(struct script *scripts, const struct bytes *bytes, int link,
                          const bool *models) {
  for (int m = 0; m < NCCL_MODELS && link != LINK_IPC; m++) {
    uint32_t found = 0, tried = cross_exchange(scripts, bytes, m, &found);
    if (tried > 0) {
      result(found == tried, link_names[link], model_names[m],
             "rows of the exchange changed about in one replica are found", NULL);
      printf("# %u of %u\n", found, tried);
    }
    if (m != BUFFERED && models[m]) {
      const char *why = play_ungrouped(scripts, m);
      result(why != NULL, link_names[link], model_names[m],
             "swaps that do not go at once are a deadlock", NULL);
      printf("# %s\n", why == NULL ? "nothing" : why);
    }
  }
  struct issue *kept = copy_of(&scripts[0]);
  if (link == LINK_IPC && forget_peers(&scripts[0])) {
    const char *why = play_all(scripts, bytes, BUFFERED);
    result(why != NULL, link_names[link], "no wait", "peers' memory that is read too soon is found",
           NULL);
    printf("# %s\n", why == NULL ? "nothing" : why);
  }
  put_back(&scripts[0], kept);
}

/* ---- exchanges between tensor ranks ---- */

static bool computes(const struct script *script, const struct issue *issue) {
  return issue->row < script->vm->program->action_count &&
         script->vm->program->actions[issue->row].kind <= PEN_W;
}

/* One of the waits of a tensor rank within its compute actions is left out; those for peers are on
 * another stream. */
static bool forget_tensor_rank(struct script *script, uint32_t wait) {
  for (uint32_t i = 0, seen = 0; i < script->count; i++) {
    struct issue *issue = &script->issue[i];
    if (issue->call == AWAIT && issue->stream == 0 && computes(script, issue) && seen++ == wait) {
      issue->call = RECORD;
      issue->object = NULL;
      return true;
    }
  }
  return false;
}

/* Leaves out each wait in turn, at most COUPLES_MOST. Returns how many there are; counts those that
 * are found, and those of them by what the slots hold. A run without a wait cannot deadlock: the
 * semaphore is still set to 0. */
static uint32_t forget_tensor_ranks(struct script *script, const struct script *scripts,
                                    const struct bytes *bytes, uint32_t *found,
                                    uint32_t *by_slots) {
  uint32_t tried = 0;
  struct issue *kept = copy_of(script);
  while (tried < COUPLES_MOST && forget_tensor_rank(script, tried)) {
    const char *why = play_all(scripts, bytes, BUFFERED);
    *found += why != NULL;
    *by_slots += why != NULL && strstr(why, "the slots of another exchange") != NULL;
    memcpy(script->issue, kept, script->count * sizeof *kept);
    tried++;
  }
  free(kept);
  return tried;
}

/* Two successive exchanges change places in one tensor rank. */
static bool cross_groups(struct script *script) {
  struct issue *first = NULL;
  for (uint32_t i = 0; i < script->count; i++) {
    struct issue *issue = &script->issue[i];
    if (issue->call == GROUP && script->swap[issue->first_swap].exchange > 0 && first == NULL) {
      first = issue;
    } else if (issue->call == GROUP && first != NULL &&
               script->swap[issue->first_swap].exchange > 0) {
      const uint32_t swap = issue->first_swap;
      issue->first_swap = first->first_swap;
      first->first_swap = swap;
      return true;
    }
  }
  return false;
}

static void test_tensor_ranks(struct script *scripts, const struct bytes *bytes, int link,
                              const bool *models) {
  if (link == LINK_IPC) {
    uint32_t found = 0, by_slots = 0;
    const uint32_t tried = forget_tensor_ranks(&scripts[0], scripts, bytes, &found, &by_slots);
    result(tried > 0 && found == tried && by_slots > 0, link_names[link], "no wait",
           "slots that are read or written too soon are found", NULL);
    printf("# %u of %u, %u by what slots hold\n", found, tried, by_slots);
    return;
  }
  const char *why = models[RENDEZVOUS] ? play_ungrouped(scripts, RENDEZVOUS) : NULL;
  result(why != NULL, link_names[link], model_names[RENDEZVOUS],
         "exchanges that do not go at once are a deadlock", NULL);
  printf("# %s\n", why == NULL ? "nothing" : why);
  struct issue *kept = copy_of(&scripts[0]);
  why = cross_groups(&scripts[0]) ? play_all(scripts, bytes, BUFFERED) : NULL;
  result(why != NULL, link_names[link], model_names[BUFFERED],
         "two exchanges that change places are found", NULL);
  printf("# %s\n", why == NULL ? "nothing" : why);
  put_back(&scripts[0], kept);
}

/* ---- modes ---- */

static bool is_alike(const struct issue *one, const struct issue *other) {
  return one->call == other->call && one->row == other->row && one->message == other->message &&
         one->value == other->value && one->slots.exchange == other->slots.exchange &&
         one->slots.first == other->slots.first;
}

/* Whether all is on the compute stream, in the order in which it is issued to several. */
static bool is_serial(const struct script *serial, const struct script *scripts) {
  bool right = true;
  for (uint32_t r = 0; r < pen_process_count(&pen_plan); r++) {
    right = right && serial[r].count == scripts[r].count;
    for (uint32_t i = 0; i < serial[r].count && right; i++) {
      right = serial[r].issue[i].stream == 0 && is_alike(&serial[r].issue[i], &scripts[r].issue[i]);
    }
  }
  return right;
}

static void test_stall(const struct script *scripts, int link, const char *model) {
  if (link == LINK_IPC) {
    const char *why = mock_device_stall(scripts, STALLS, false);
    result(why == NULL, link_names[link], model, "a device that stops is the one that all wait for",
           why);
  }
}

/* Serial: the most waits that there can be; a device may execute the branches of a graph so, too,
 * or streams that share a hardware queue. Some ranks may be serial and others not. */
static struct script *test_modes(enum link link, uint32_t profile, const char *name,
                                 const char *const modes[2]) {
  struct script *scripts = mock_device_record(link, profile, modes);
  const struct bytes bytes = mock_device_bytes();
  for (uint32_t r = 0; r < pen_process_count(&pen_plan); r++) {
    uint32_t used = 0;
    for (uint32_t i = 0; i < scripts[r].count; i++) {
      used = scripts[r].issue[i].stream > used ? scripts[r].issue[i].stream : used;
    }
    scripts[r].stream_count = used + 1; /* none is stopped that is empty */
  }
  const char *why = NULL;
  for (uint64_t seed = 0; seed < 3 && why == NULL; seed++) {
    why = mock_device_play(scripts, &bytes, link == LINK_IPC ? BUFFERED : IN_TURN,
                           (struct pace){.slow_rank = PEN_NONE, .seed = seed}, STEPS);
  }
  result(why == NULL, link_names[link], name, "three steps", why);
  test_stall(scripts, link, name);
  return scripts;
}

/* ---- all tests ---- */

static void replay(enum link link, uint32_t profile) {
  static const char *const marked[2] = {"marked", "marked"}, *const all[2] = {"serial", "serial"},
                           *const some[2] = {"serial", "marked"};
  const struct script *serial = test_modes(link, profile, "serial", all);
  test_modes(link, profile, "serial and not", some);
  struct script *scripts = mock_device_record(link, profile, marked);
  const struct bytes bytes = mock_device_bytes();
  const bool models[NCCL_MODELS] = {true, link != LINK_IPC, link != LINK_IPC};
  const uint32_t replicas = pen_plan.replica_count, tensor_ranks = pen_plan.tensor_ranks;
  const uint32_t pairs = pen_pipeline_count(&pen_plan) * pen_plan.profiles[0].channel_count +
                         (replicas > 1 ? pen_plan.rank_count * tensor_ranks : 0) +
                         (tensor_ranks > 1 ? pen_plan.rank_count * replicas : 0);
  if (profile == 0) {
    result(link == LINK_IPC || mock_device_pairs() == pairs, link_names[link], "communicators",
           "one a pair of ranks that talk, one a rank's peers, one its tensor ranks", NULL);
  }
  if (replicas > 1 && mock_device_profile->kind == PEN_TRAIN) {
    result(mock_device_sums() > 0 && mock_device_wrong_sums() == 0, link_names[link], "sums",
           "replicas' gradients are added in their order", NULL);
  }
  for (int m = 0; m < NCCL_MODELS; m++) {
    if (models[m]) {
      const char *why = play_all(scripts, &bytes, m);
      result(why == NULL, link_names[link], model_names[m], "three steps, at any pace", why);
    }
  }
  result(is_serial(serial, scripts), link_names[link], "serial",
         "the same calls in the same order, in one stream", NULL);
  test_stall(scripts, link, "streams");
  if (link == LINK_IPC && mock_device_profile->message_count > 0) {
    result(mock_device_stall(scripts, STALLS, true) != NULL, link_names[link], "streams",
           "messages reported too soon are found when a device stops", NULL);
  }
  if (profile == 0 && tensor_ranks > 1) {
    test_tensor_ranks(scripts, &bytes, link, models);
  }
  if (profile == 0 && replicas > 1) {
    test_exchange(scripts, &bytes, link, models);
  }
  if (profile == 0 && replicas == 1 && link == LINK_PUTS) {
    test_broken_puts(scripts, &bytes);
  }
  if (profile == 0 && replicas == 1) {
    test_broken(scripts, &bytes, link, models); /* leaves the scripts changed */
  }
}

/* With --copies: prints the copies of a step. */
static int print_copies(void) {
  static const char *const modes[2] = {"marked", "marked"};
  for (uint32_t profile = 0; profile < pen_plan.profile_count; profile++) {
    for (int link = 0; link < LINK_PUTS; link++) {
      mock_device_copies_begin();
      mock_device_record(link, profile, modes);
      mock_device_copies_print(profile, link_names[link]);
    }
  }
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 1 && strcmp(argv[1], "--copies") == 0) {
    return print_copies();
  }
  for (uint32_t profile = 0; profile < pen_plan.profile_count; profile++) {
    for (int link = 0; link < LINKS; link++) {
      replay(link, profile);
    }
  }
  printf("1..%u\n", tests_run);
  return failed;
}
