/* stall.c: of ranks on several hosts that wait for each other in a cycle, the link is lost that has
 * not brought a message which was sent, whoever stopped first; one command reports it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/options.h"
#include "runtime/supervise/internal.h"

enum { RANKS = 3, MESSAGES = 4 };

/* One microbatch through three stages, a rank and a host each, and the norm. */
static struct pen_action first[] = {{.kind = PEN_SEND_F, .message = 0},
                                    {.kind = PEN_WAIT_B, .message = 3},
                                    {.kind = PEN_WAIT_NORM, .message = PEN_NONE}},
                         middle[] = {{.kind = PEN_WAIT_F, .message = 0},
                                     {.kind = PEN_SEND_F, .message = 1},
                                     {.kind = PEN_WAIT_B, .message = 2},
                                     {.kind = PEN_SEND_B, .message = 3},
                                     {.kind = PEN_WAIT_NORM, .message = PEN_NONE}},
                         last[] = {{.kind = PEN_WAIT_F, .message = 1},
                                   {.kind = PEN_SEND_B, .message = 2},
                                   {.kind = PEN_WAIT_NORM, .message = PEN_NONE}};
static struct pen_rank_program programs[RANKS] = {{.actions = first, .action_count = 3},
                                                  {.actions = middle, .action_count = 5},
                                                  {.actions = last, .action_count = 3}};
static struct pen_channel channels[MESSAGES] = {{.from_rank = 0, .to_rank = 1},
                                                {.from_rank = 1, .to_rank = 2},
                                                {.from_rank = 2, .to_rank = 1},
                                                {.from_rank = 1, .to_rank = 0}};
static struct pen_message messages[MESSAGES] = {
    {.channel = 0}, {.channel = 1}, {.channel = 2}, {.channel = 3}};
static const struct pen_profile profile = {.ranks = programs,
                                           .channels = channels,
                                           .messages = messages,
                                           .channel_count = MESSAGES,
                                           .message_count = MESSAGES};
static const uint32_t rank_hosts[RANKS] = {0, 1, 2};
static const struct pen_plan plan = {.rank_count = RANKS,
                                     .replica_count = 1,
                                     .tensor_ranks = 1,
                                     .shard_ranks = 1,
                                     .host_count = RANKS,
                                     .rank_hosts = rank_hosts,
                                     .device = PEN_DEVICE_CPU,
                                     .transport = PEN_TRANSPORT_OFI,
                                     .profiles = &profile,
                                     .profile_count = 1};

/* Where a rank waits, and for which. */
struct stand {
  uint32_t action, waits_for;
};

/* What the command of a host finds, after all ranks have stood for a minute. */
static void check_host(uint32_t host, const struct stand places[RANKS], uint32_t lost,
                       const char *cause) {
  const struct pen_options options = {.timeout = 3};
  struct pen_control control = {0};
  struct pen_rank_state *states = calloc(RANKS, sizeof *states);
  struct pen_watched_rank watched[RANKS] = {{0}};
  struct pen_run run = {.plan = &plan,
                        .options = &options,
                        .local = pen_rank_set_of(&plan, host, PEN_NONE),
                        .shared = {.control = &control, .ranks = states, .process_count = RANKS}};
  struct pen_watchdog watchdog = {.run = &run,
                                  .ranks = watched,
                                  .rank_count = RANKS,
                                  .local_count = 1,
                                  .lost = PEN_NONE,
                                  .send_index = pen_stall_index_sends(&plan)};
  assert_non_null(states);
  for (uint32_t r = 0; r < RANKS; r++) {
    snprintf(states[r].host, sizeof states[r].host, "host%u", r + 1);
    atomic_store(&states[r].finished, places[r].action);
    atomic_store(&states[r].waits_for, places[r].waits_for + 1);
    watched[r].no_action_ns = 60000000000u;
  }
  pen_stall_check(&watchdog);
  assert_int_equal(watchdog.lost, lost);
  assert_string_equal(watchdog.cause, cause);
  pen_stall_free_index(&plan, watchdog.send_index);
  free(states);
}

/* The second host alone loses its link to the third. */
static void check_one_link(const struct stand places[RANKS]) {
  check_host(0, places, PEN_NONE, "");
  check_host(1, places, 1, "link to host host3 lost");
  check_host(2, places, PEN_NONE, "");
}

static void loses_the_link_whose_message_was_sent(void **state) {
  (void)state;
  check_one_link((const struct stand[RANKS]){{1, 1}, {2, 2}, {2, 0}});
}

/* The last rank waits for a message that the middle one has sent. */
static void reports_a_link_at_its_lower_rank(void **state) {
  (void)state;
  check_one_link((const struct stand[RANKS]){{1, 1}, {2, 2}, {0, 1}});
}

/* The middle rank waits for the credit of its first message. */
static void without_a_message_loses_the_links_to_higher_ranks(void **state) {
  (void)state;
  static const struct stand places[RANKS] = {{1, 1}, {1, 2}, {2, 0}};
  check_host(0, places, 0, "link to host host2 lost");
  check_host(1, places, 1, "link to host host3 lost");
  check_host(2, places, PEN_NONE, "");
}

static void loses_none_while_a_rank_does_not_wait(void **state) {
  (void)state;
  struct stand places[RANKS] = {{1, 1}, {2, 2}, {2, PEN_NONE}};
  for (uint32_t host = 0; host < RANKS - 1; host++) {
    check_host(host, places, PEN_NONE, "");
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(loses_the_link_whose_message_was_sent),
      cmocka_unit_test(reports_a_link_at_its_lower_rank),
      cmocka_unit_test(without_a_message_loses_the_links_to_higher_ranks),
      cmocka_unit_test(loses_none_while_a_rank_does_not_wait),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
