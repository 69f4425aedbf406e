/* transport.c: the shm transport's two ends, driven by two threads: order, credits, counters that
 * wrap around, board, barrier, abort. Under ThreadSanitizer it shows as well that a flag orders
 * what the ends do to a target. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "runtime/commands/two_ranks.h"
#include "runtime/comm/shm.h"

enum { STEPS = 300, NO_SPIN_NS = 0, SPIN_NS = 20000 };

/* In a step MESSAGES messages go from rank 0 to rank 1, message m to slot m mod SLOTS, each with a
 * credit; then one returns. An arena has the slots, then what it sends. */
enum {
  MESSAGES = 16,
  SLOTS = 4,
  MESSAGE_BYTES = 4096,
  SOURCE_OFFSET = SLOTS * MESSAGE_BYTES,
  BACK = MESSAGES
};

struct two_ranks {
  struct pen_two_ranks pair;
  struct pen_message messages[MESSAGES + 1];
  struct pen_endpoint endpoint[2];
  struct pen_transport *transport[2];
};

/* Opens both ends in this process. The whole arena is in the receive region, at one address in both
 * ranks, so that a data race detector sees both. */
static void open_ends(struct two_ranks *two, uint64_t spin_ns) {
  struct pen_two_ranks *pair = &two->pair;
  pair->plan.weight_count = 3;
  pen_shared_open(&pair->shared, &pair->plan);
  pair->shared.control->spin_ns = spin_ns;
  for (uint32_t r = 0; r < 2; r++) {
    unsigned char *arena = pair->shared.memory + pair->shared.receive_region_offset[r];
    two->endpoint[r] = pen_endpoint_of(&pair->plan, &pair->shared, r, arena);
    two->transport[r] = pen_shm_open(
        &(struct pen_transport_config){.endpoint = &two->endpoint[r], .profile = &pair->profile});
  }
}

static void two_ranks_open(struct two_ranks *two, uint64_t spin_ns) {
  pen_two_ranks_make(&two->pair, PEN_TRANSPORT_SHM, SOURCE_OFFSET);
  two->messages[BACK] = two->pair.messages[1];
  for (uint32_t m = 0; m < MESSAGES; m++) {
    const uint64_t target = (uint64_t)(m % SLOTS) * MESSAGE_BYTES;
    two->messages[m] = (struct pen_message){.kind = PEN_SEND_F,
                                            .microbatch = m,
                                            .sequence = m,
                                            .credit = m,
                                            .source_offset = SOURCE_OFFSET + target,
                                            .target_offset = target,
                                            .bytes = MESSAGE_BYTES};
  }
  two->messages[BACK].bytes = MESSAGE_BYTES;
  two->pair.channels[0].message_count = two->pair.channels[0].credit_count = MESSAGES;
  two->pair.profile.messages = two->messages;
  two->pair.profile.message_count = MESSAGES + 1;
  two->pair.plan.microbatch_count = two->pair.plan.loss_count = MESSAGES;
  open_ends(two, spin_ns);
}

static void two_ranks_close(struct two_ranks *two) {
  free(two->transport[0]);
  free(two->transport[1]);
  pen_shared_close(&two->pair.shared);
}

/* What the two threads run: `steps` steps from `first_step` on. */
struct traffic {
  struct two_ranks two;
  uint64_t first_step, steps;
  uint64_t wrong[2]; /* what each thread found not to be what was sent */
  uint64_t pause_ns;
  bool aborted[2];
};

static unsigned char value_of(uint64_t step, uint32_t message) {
  return (unsigned char)(step * 31 + message * 7 + 1);
}

static void pause_now(uint64_t ns) {
  const struct timespec time = {.tv_nsec = (long)ns};
  if (ns != 0) {
    nanosleep(&time, NULL);
  }
}

static void *run_sender(void *argument) {
  struct traffic *traffic = argument;
  struct pen_transport *end = traffic->two.transport[0];
  bool going = true;
  end->profile_step = traffic->first_step;
  for (uint64_t step = traffic->first_step; going && step < traffic->first_step + traffic->steps;
       step++) {
    for (uint32_t m = 0; going && m < MESSAGES; m++) {
      const struct pen_message *message = &traffic->two.messages[m];
      memset(end->arena + message->source_offset, value_of(step, m), MESSAGE_BYTES);
      going = end->ops->send(end, m);
    }
    going = going && end->ops->wait(end, BACK);
    traffic->wrong[0] += going && end->arena[0] != value_of(step, BACK);
    end->profile_step++;
  }
  traffic->aborted[0] = !going;
  return NULL;
}

static void check_target(struct traffic *traffic, const unsigned char *target,
                         unsigned char expected) {
  for (uint32_t i = 0; i < MESSAGE_BYTES; i++) {
    traffic->wrong[1] += target[i] != expected;
  }
}

/* Gives the credits of the first SLOTS targets, then each target's again as soon as it has been
 * read.
 */
static void *run_receiver(void *argument) {
  struct traffic *traffic = argument;
  struct pen_transport *end = traffic->two.transport[1];
  bool going = true;
  end->profile_step = traffic->first_step;
  for (uint64_t step = traffic->first_step; going && step < traffic->first_step + traffic->steps;
       step++) {
    for (uint32_t m = 0; m < SLOTS; m++) {
      end->ops->receive(end, m, NULL, 0);
    }
    for (uint32_t m = 0; going && m < MESSAGES; m++) {
      const struct pen_message *message = &traffic->two.messages[m];
      going = end->ops->wait(end, m);
      if (going) {
        pause_now(traffic->pause_ns);
        check_target(traffic, end->arena + message->target_offset, value_of(step, m));
      }
      if (going && m + SLOTS < MESSAGES) {
        end->ops->receive(end, m + SLOTS, NULL, 0);
      }
    }
    memset(end->arena + SOURCE_OFFSET, value_of(step, BACK), MESSAGE_BYTES);
    going = going && end->ops->send(end, BACK);
    end->profile_step++;
  }
  traffic->aborted[1] = !going;
  return NULL;
}

static void run_both(struct traffic *traffic, void *(*first)(void *), void *(*second)(void *)) {
  pthread_t threads[2];
  assert_int_equal(pthread_create(&threads[0], NULL, first, traffic), 0);
  assert_int_equal(pthread_create(&threads[1], NULL, second, traffic), 0);
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
}

static void test_every_message_arrives_in_order(void **state) {
  (void)state;
  struct traffic traffic = {.steps = STEPS};
  two_ranks_open(&traffic.two, SPIN_NS);
  run_both(&traffic, run_sender, run_receiver);
  assert_int_equal(traffic.wrong[0] + traffic.wrong[1], 0);
  assert_int_equal(atomic_load(&traffic.two.pair.shared.arrivals[0].count), STEPS * MESSAGES);
  two_ranks_close(&traffic.two);
}

static void test_sleeping_ends_wake_each_other(void **state) {
  (void)state;
  struct traffic traffic = {.steps = STEPS};
  two_ranks_open(&traffic.two, NO_SPIN_NS);
  run_both(&traffic, run_sender, run_receiver);
  assert_int_equal(traffic.wrong[0] + traffic.wrong[1], 0);
  two_ranks_close(&traffic.two);
}

/* A slow receiver: without credits the sender would write over targets that are being read. */
static void test_no_home_is_written_before_its_credit(void **state) {
  (void)state;
  struct traffic traffic = {.steps = 4, .pause_ns = 200000};
  two_ranks_open(&traffic.two, SPIN_NS);
  run_both(&traffic, run_sender, run_receiver);
  assert_int_equal(traffic.wrong[0] + traffic.wrong[1], 0);
  two_ranks_close(&traffic.two);
}

/* ---- messages that are taken in part by part ---- */

enum { LARGE_BYTES = (200 << 10) + 24, LARGE_OFFSET = 256 << 10, LARGE_STEPS = 200 };

static unsigned char large_value(uint64_t step, uint32_t at) {
  return value_of(step, at / MESSAGE_BYTES);
}

static void *run_large_sender(void *argument) {
  struct traffic *traffic = argument;
  struct pen_transport *end = traffic->two.transport[0];
  for (uint64_t step = 0; step < LARGE_STEPS; step++) {
    for (uint32_t at = 0; at < LARGE_BYTES; at++) {
      end->arena[LARGE_OFFSET + at] = large_value(step, at);
    }
    end->ops->send(end, 0);
    end->ops->wait(end, 1);
    end->profile_step++;
  }
  return NULL;
}

static void *run_large_receiver(void *argument) {
  struct traffic *traffic = argument;
  struct pen_transport *end = traffic->two.transport[1];
  for (uint64_t step = 0; step < LARGE_STEPS; step++) {
    pause_now(step % 3 == 0 ? traffic->pause_ns : 0); /* it may all be there before the wait */
    end->ops->wait(end, 0);
    for (uint32_t at = 0; at < LARGE_BYTES; at++) {
      traffic->wrong[1] += end->arena[at] != large_value(step, at);
    }
    end->ops->send(end, 1);
    end->profile_step++;
  }
  return NULL;
}

static void send_large_messages(uint64_t spin_ns) {
  struct traffic traffic = {.pause_ns = 200000};
  struct two_ranks *two = &traffic.two;
  pen_two_ranks_make(&two->pair, PEN_TRANSPORT_SHM, LARGE_OFFSET);
  pen_two_ranks_set_bytes(&two->pair, LARGE_BYTES);
  open_ends(two, spin_ns);
  run_both(&traffic, run_large_sender, run_large_receiver);
  assert_int_equal(traffic.wrong[1], 0);
  assert_int_equal(atomic_load(&two->pair.shared.begun[0].count), LARGE_STEPS);
  assert_int_equal(atomic_load(&two->pair.shared.bytes_there[0].count), LARGE_BYTES);
  two_ranks_close(two);
}

static void test_large_messages_arrive_part_by_part(void **state) {
  (void)state;
  send_large_messages(SPIN_NS);
  send_large_messages(NO_SPIN_NS);
}

static void test_counters_wrap_around(void **state) {
  (void)state;
  const uint64_t first_step =
      ((uint64_t)1 << 32) / MESSAGES - 3; /* the counters pass 2^32 in the third step */
  struct traffic traffic = {.first_step = first_step, .steps = 8};
  two_ranks_open(&traffic.two, SPIN_NS);
  atomic_store(&traffic.two.pair.shared.arrivals[0].count, (uint32_t)(first_step * MESSAGES));
  atomic_store(&traffic.two.pair.shared.credits[0].count, (uint32_t)(first_step * MESSAGES));
  atomic_store(&traffic.two.pair.shared.arrivals[1].count, (uint32_t)first_step);
  run_both(&traffic, run_sender, run_receiver);
  assert_int_equal(traffic.wrong[0] + traffic.wrong[1], 0);
  assert_int_equal(atomic_load(&traffic.two.pair.shared.arrivals[0].count), 5 * MESSAGES);
  two_ranks_close(&traffic.two);
}

static void test_send_waits_for_credit_and_wait_for_arrival(void **state) {
  (void)state;
  struct two_ranks two;
  two_ranks_open(&two, NO_SPIN_NS);
  assert_false(pen_futex_counter_reached(&two.pair.shared.credits[0], 1));
  two.transport[1]->ops->receive(two.transport[1], 0, NULL, 0);
  assert_true(pen_futex_counter_reached(&two.pair.shared.credits[0], 1));
  assert_false(pen_futex_counter_reached(&two.pair.shared.arrivals[0], 1));
  assert_true(two.transport[0]->ops->send(two.transport[0], 0));
  assert_true(pen_futex_counter_reached(&two.pair.shared.arrivals[0], 1));
  assert_false(pen_futex_counter_reached(&two.pair.shared.arrivals[0], 2));
  two_ranks_close(&two);
}

/* ---- board and barrier ---- */

enum { BOARD_STEPS = 200 };

static void play_board(struct traffic *traffic, uint32_t rank) {
  struct pen_endpoint *end = &traffic->two.endpoint[rank];
  for (uint64_t step = 0; step < BOARD_STEPS; step++) {
    pen_endpoint_wait_log(end, step);
    double *board = pen_endpoint_step_stats(end, step);
    board[rank] = (double)(step * 2 + rank);
    pen_endpoint_publish(end, step);
    if (rank == 0) {
      pen_endpoint_gather(end, step);
      traffic->wrong[0] += board[0] != (double)(step * 2) || board[1] != (double)(step * 2 + 1);
      pen_endpoint_log_read(end);
    }
    if (step % 50 == 0) {
      pen_endpoint_barrier(end);
    }
  }
}

static void *play_board_0(void *traffic) {
  play_board(traffic, 0);
  return NULL;
}

static void *play_board_1(void *traffic) {
  play_board(traffic, 1);
  return NULL;
}

/* Rank 1 never gathers: it runs ahead, and must not write over a board that rank 0 has not read. */
static void test_boards_are_read_before_they_are_written_over(void **state) {
  (void)state;
  struct traffic traffic = {.steps = 0};
  two_ranks_open(&traffic.two, SPIN_NS);
  run_both(&traffic, play_board_0, play_board_1);
  assert_int_equal(traffic.wrong[0] + traffic.wrong[1], 0);
  two_ranks_close(&traffic.two);
}

static void *agree_0(void *argument) {
  struct traffic *traffic = argument;
  traffic->wrong[0] = pen_endpoint_compare_plans(&traffic->two.endpoint[0], &traffic->aborted[0]);
  return NULL;
}

static void *agree_1(void *argument) {
  struct traffic *traffic = argument;
  traffic->wrong[1] = pen_endpoint_compare_plans(&traffic->two.endpoint[1], &traffic->aborted[1]);
  return NULL;
}

static void test_ranks_compare_digests(void **state) {
  (void)state;
  for (int differs = 0; differs < 2; differs++) {
    struct traffic traffic = {.steps = 0};
    two_ranks_open(&traffic.two, SPIN_NS);
    struct pen_plan other = traffic.two.pair.plan;
    other.digest[31] = (uint8_t)differs;
    traffic.two.endpoint[1].plan = &other;
    run_both(&traffic, agree_0, agree_1);
    assert_false(traffic.aborted[0] || traffic.aborted[1]);
    assert_int_equal(traffic.wrong[0], differs ? 1 : PEN_NONE);
    assert_int_equal(traffic.wrong[1], differs ? 0 : PEN_NONE);
    two_ranks_close(&traffic.two);
  }
}

/* ---- abort ---- */

static void *abort_soon(void *argument) {
  struct traffic *traffic = argument;
  pause_now(20 * 1000000);
  traffic->wrong[1] += !pen_shared_abort(&traffic->two.pair.shared, 75);
  traffic->wrong[1] += pen_shared_abort(&traffic->two.pair.shared, 65); /* the first one counts */
  return NULL;
}

static void test_abort_frees_who_waits(void **state) {
  (void)state;
  void *(*const waiting[])(void *) = {run_sender, run_receiver};
  for (int side = 0; side < 2; side++) {
    struct traffic traffic = {.steps = 1};
    two_ranks_open(&traffic.two, NO_SPIN_NS);
    run_both(&traffic, waiting[side], abort_soon); /* no rank at the other end */
    assert_true(traffic.aborted[side]);
    assert_int_equal(traffic.wrong[0] + traffic.wrong[1], 0);
    assert_int_equal(atomic_load(&traffic.two.pair.shared.control->abort_status), 75);
    assert_int_equal(atomic_load(&traffic.two.pair.shared.ranks[side].waits_for), 0);
    two_ranks_close(&traffic.two);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_message_arrives_in_order),
      cmocka_unit_test(test_sleeping_ends_wake_each_other),
      cmocka_unit_test(test_no_home_is_written_before_its_credit),
      cmocka_unit_test(test_large_messages_arrive_part_by_part),
      cmocka_unit_test(test_counters_wrap_around),
      cmocka_unit_test(test_send_waits_for_credit_and_wait_for_arrival),
      cmocka_unit_test(test_boards_are_read_before_they_are_written_over),
      cmocka_unit_test(test_ranks_compare_digests),
      cmocka_unit_test(test_abort_frees_who_waits),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
