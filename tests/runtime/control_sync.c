/* control_sync.c: words of other hosts' ranks are applied while local ranks write their own. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/control/control_sync.h"

enum { WEIGHTS = 64, APPLIED = 3000000 };

/* The even weights are of rank 0, which is local, the odd ones of rank 1 on another host. */
struct fixture {
  struct pen_weight weights[WEIGHTS];
  struct pen_profile profile;
  struct pen_stage stages[2];
  uint32_t rank_hosts[2];
  struct pen_plan plan;
  struct pen_control control;
  double stats[PEN_STEP_STATS_DEPTH * WEIGHTS];
  struct pen_shared shared;
  struct pen_control_sync *sync;
  _Atomic uint32_t applied; /* messages */
};

static int open_fixture(void **state) {
  struct fixture *f = calloc(1, sizeof *f);
  assert_non_null(f);
  for (uint32_t w = 0; w < WEIGHTS; w++) {
    f->weights[w].rank = w % 2;
    f->weights[w].split_count = 1;
  }
  f->stages[1].rank = f->rank_hosts[1] = 1;
  f->profile.stages = f->stages;
  f->plan = (struct pen_plan){.rank_count = 2,
                              .replica_count = 1,
                              .tensor_ranks = 1,
                              .stage_count = 2,
                              .rank_hosts = f->rank_hosts,
                              .weights = f->weights,
                              .weight_count = WEIGHTS,
                              .profiles = &f->profile,
                              .profile_count = 1};
  f->shared = (struct pen_shared){
      .control = &f->control, .step_stats = f->stats, .step_stats_count = WEIGHTS};
  f->sync = pen_control_sync_open(&f->plan, &f->shared, pen_rank_set_of(&f->plan, 0, PEN_NONE));
  *state = f;
  return 0;
}

static int close_fixture(void **state) {
  struct fixture *f = *state;
  pen_control_sync_close(f->sync);
  free(f);
  return 0;
}

static void *apply_statistics(void *context) {
  struct fixture *f = context;
  double sent[WEIGHTS];
  for (uint32_t round = 1; round <= APPLIED; round++) {
    atomic_store(&f->applied, round - 1);
    for (uint32_t w = 0; w < WEIGHTS; w++) {
      sent[w] = round;
    }
    const struct pen_control_message message = {
        .kind = PEN_MESSAGE_STEP_STATS, .rank = 1, .bytes = sizeof sent};
    pen_control_sync_apply(f->sync, &message, sent);
  }
  atomic_store(&f->applied, UINT32_MAX);
  return NULL;
}

/* Waits for the end of the message that is being applied. */
static void wait_applied(struct fixture *f) {
  const uint32_t applied = atomic_load(&f->applied);
  while (applied < APPLIED && atomic_load(&f->applied) == applied) {
    sched_yield();
  }
}

static uint32_t count_lost(volatile const double *stats, double round) {
  uint32_t lost = 0;
  for (uint32_t w = 0; w < WEIGHTS; w += 2) {
    lost += stats[w] != round;
  }
  return lost;
}

static void test_applied_statistics_leave_those_of_local_ranks(void **state) {
  struct fixture *f = *state;
  volatile double *stats = f->stats;
  pthread_t thread;
  uint32_t lost = 0;
  assert_int_equal(pthread_create(&thread, NULL, apply_statistics, f), 0);
  for (int round = 1; atomic_load(&f->applied) < APPLIED; round++) {
    for (uint32_t w = 0; w < WEIGHTS; w += 2) {
      stats[w] = round;
    }
    wait_applied(f);
    lost += count_lost(stats, round);
  }
  pthread_join(thread, NULL);
  assert_int_equal(lost, 0);
}

static void test_applied_statistics_are_those_of_the_rank(void **state) {
  struct fixture *f = *state;
  double sent[WEIGHTS];
  for (uint32_t w = 0; w < WEIGHTS; w++) {
    sent[w] = 1.0 + w;
  }
  const uint64_t step = PEN_STEP_STATS_DEPTH + 1; /* its entries are the ring's second ones */
  const struct pen_control_message message = {
      .kind = PEN_MESSAGE_STEP_STATS, .rank = 1, .number = step, .bytes = sizeof sent};
  pen_control_sync_apply(f->sync, &message, sent);
  for (uint32_t i = 0; i < PEN_STEP_STATS_DEPTH * WEIGHTS; i++) {
    const uint32_t w = i % WEIGHTS;
    assert_true(f->stats[i] == (i / WEIGHTS == 1 && w % 2 == 1 ? 1.0 + w : 0.0));
  }
}

static void test_a_part_of_the_mailbox_leaves_what_the_host_has(void **state) {
  struct fixture *f = *state;
  uint32_t mailbox[] = {UINT32_MAX, 1, UINT32_MAX, UINT32_MAX};
  const uint32_t sent[] = {UINT32_MAX, 0, UINT32_MAX}, wanted[] = {UINT32_MAX, 1, 0, UINT32_MAX};
  f->shared.mailbox = (unsigned char *)mailbox;
  f->shared.mailbox_bytes = sizeof mailbox;
  struct pen_control_message message = {
      .kind = PEN_MESSAGE_PART, .rank = 1, .number = sizeof *mailbox, .bytes = sizeof sent};
  assert_true(pen_control_sync_fits(f->sync, &message));
  pen_control_sync_apply(f->sync, &message, sent);
  assert_memory_equal(mailbox, wanted, sizeof wanted);
  const uint64_t past[][2] = {{8, sizeof sent}, {20, 0}, {UINT64_MAX - 3, 8}, {0, UINT64_MAX}};
  for (size_t i = 0; i < sizeof past / sizeof *past; i++) {
    message.number = past[i][0];
    message.bytes = past[i][1];
    assert_false(pen_control_sync_fits(f->sync, &message));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_applied_statistics_leave_those_of_local_ranks,
                                      open_fixture, close_fixture),
      cmocka_unit_test_setup_teardown(test_applied_statistics_are_those_of_the_rank, open_fixture,
                                      close_fixture),
      cmocka_unit_test_setup_teardown(test_a_part_of_the_mailbox_leaves_what_the_host_has,
                                      open_fixture, close_fixture),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
