/* membership.c: which host serves, which part of a run goes on after a loss, and from which
 * state. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/control/membership.h"
#include "runtime/control/start_state.h"

/* Three hosts of two ranks, rank 0 on the second one, and two spares. */
static const uint32_t rank_hosts[] = {1, 0, 2, 1, 0, 2};
static const char *const names[] = {"a", "b", "c", "x", "y"};
static const struct pen_plan plan = {.rank_count = 6,
                                     .replica_count = 1,
                                     .tensor_ranks = 1,
                                     .hosts = names,
                                     .host_count = 3,
                                     .spare_count = 2,
                                     .rank_hosts = rank_hosts};

static struct pen_membership membership_of(uint32_t own) {
  struct pen_membership membership;
  const struct pen_rank_set local = pen_rank_set_of(&plan, own, PEN_NONE);
  pen_membership_open(&membership, &plan, &local);
  return membership;
}

static void lose(struct pen_membership *membership, uint32_t host, enum pen_host_state state) {
  atomic_store(&membership->states[host], state);
}

static void test_the_host_of_rank_0_serves(void **state) {
  (void)state;
  struct pen_membership membership = membership_of(2);
  assert_int_equal(pen_membership_server(&membership), 1);
  lose(&membership, 1, PEN_HOST_LOST);
  assert_int_equal(pen_membership_server(&membership), 0);
  lose(&membership, 0, PEN_HOST_LOST);
  assert_int_equal(pen_membership_server(&membership), 2);
  pen_membership_close(&membership);
}

static void test_a_spare_takes_the_ranks_of_a_lost_host(void **state) {
  (void)state;
  struct pen_membership membership = membership_of(0);
  assert_int_equal(pen_host_ranks(&membership, 3, PEN_NONE).count, 0);
  assert_false(pen_membership_place(&membership, 3)); /* no host is lost */
  lose(&membership, 1, PEN_HOST_LOST);
  pen_membership_vacate(&membership);
  assert_false(pen_membership_place(&membership, 2)); /* it has ranks */
  assert_true(pen_membership_place(&membership, 4));
  const struct pen_rank_set ranks = pen_host_ranks(&membership, 4, PEN_NONE);
  assert_int_equal(ranks.first, 0);
  assert_int_equal(ranks.count, 2);
  assert_true(pen_rank_set_has(&ranks, 3));
  assert_int_equal(pen_host_ranks(&membership, 1, PEN_NONE).count, 0);
  assert_int_equal(pen_membership_server(&membership), 4);
  assert_false(pen_membership_place(&membership, 3));
  pen_membership_close(&membership);
}

/* Which hosts are lost or silent, from the view of the first: whether the run goes on. */
static void test_one_part_of_a_run_goes_on(void **state) {
  (void)state;
  static const struct {
    enum pen_host_state states[5];
    bool goes_on;
  } cases[] = {
      {{0, 0, 0, 0, 0}, true},
      {{0, PEN_HOST_LOST, 0, 0, 0}, true},
      {{0, PEN_HOST_LOST, PEN_HOST_LOST, 0, 0}, true},
      {{PEN_HOST_LOST, PEN_HOST_LOST, PEN_HOST_LOST, 0, 0}, false},     /* no host is left */
      {{0, PEN_HOST_LOST, PEN_HOST_LOST, 0, PEN_HOST_LOST}, false},     /* more than spares */
      {{0, PEN_HOST_SILENT, PEN_HOST_SILENT, 0, 0}, true},              /* three of five */
      {{0, PEN_HOST_SILENT, 0, PEN_HOST_SILENT, PEN_HOST_LOST}, false}, /* no spare */
      {{PEN_HOST_SILENT, 0, 0, PEN_HOST_LOST, 0}, true},
      {{PEN_HOST_SILENT, PEN_HOST_LOST, PEN_HOST_LOST, 0, 0}, false}, /* no host is left */
      {{0, PEN_HOST_SILENT, 0, PEN_HOST_SILENT, 0}, true},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct pen_membership membership = membership_of(0);
    for (uint32_t h = 0; h < 5; h++) {
      lose(&membership, h, cases[i].states[h]);
    }
    assert_int_equal(pen_membership_can_continue(&membership), cases[i].goes_on);
    pen_membership_close(&membership);
  }
}

/* Two hosts and two spares are cut from each other in every way: never do both parts go on. */
static void test_never_do_two_parts_go_on(void **state) {
  (void)state;
  static const uint32_t hosts[] = {0, 1};
  const struct pen_plan two = {.rank_count = 2,
                               .replica_count = 1,
                               .tensor_ranks = 1,
                               .hosts = names,
                               .host_count = 2,
                               .spare_count = 2,
                               .rank_hosts = hosts};
  for (uint32_t part = 1; part < 15; part++) {
    uint32_t going = 0;
    for (uint32_t side = 0; side < 2; side++) {
      struct pen_membership membership;
      const struct pen_rank_set local = pen_rank_set_of(&two, side, PEN_NONE);
      pen_membership_open(&membership, &two, &local);
      for (uint32_t h = 0; h < 4; h++) {
        lose(&membership, h, (part >> h & 1) == side ? PEN_HOST_LIVES : PEN_HOST_SILENT);
      }
      going += pen_membership_can_continue(&membership);
      pen_membership_close(&membership);
    }
    assert_in_range(going, 0, 1);
  }
}

/* For three hosts and two spares: fallbacks for two hosts and for one. */
static const uint32_t two_hosts[] = {1, 0, 1, 0}, one_host[] = {0};
static const struct pen_plan fallbacks[] = {{.rank_count = 4,
                                             .replica_count = 1,
                                             .tensor_ranks = 1,
                                             .hosts = names,
                                             .host_count = 2,
                                             .spare_count = 3,
                                             .rank_hosts = two_hosts},
                                            {.rank_count = 1,
                                             .replica_count = 1,
                                             .tensor_ranks = 1,
                                             .hosts = names,
                                             .host_count = 1,
                                             .spare_count = 4,
                                             .rank_hosts = one_host}};

static void open_with_fallbacks(struct pen_membership *membership, struct pen_plan *of,
                                uint32_t own) {
  *of = plan;
  of->fallbacks = fallbacks;
  of->fallback_count = 2;
  const struct pen_rank_set local = pen_rank_set_of(of, own, PEN_NONE);
  pen_membership_open(membership, of, &local);
}

static void test_the_first_fallback_that_fits(void **state) {
  (void)state;
  struct pen_plan of;
  struct pen_membership membership;
  open_with_fallbacks(&membership, &of, 0);
  lose(&membership, 1, PEN_HOST_LOST);
  assert_false(pen_membership_fall_back(&membership)); /* there are spares */
  lose(&membership, 3, PEN_HOST_LOST);
  lose(&membership, 4, PEN_HOST_LOST);
  assert_true(pen_membership_can_continue(&membership));
  assert_true(pen_membership_fall_back(&membership));
  assert_int_equal(pen_plan_index(&of, membership.current), 1);
  assert_ptr_equal(pen_plan_of_index(&of, 1), membership.current);
  assert_null(pen_plan_of_index(&of, 3));
  /* The server has rank 0's host, the other one that lives the rest. */
  assert_int_equal(membership.places[1].host, 0);
  assert_int_equal(membership.places[0].host, 2);
  assert_int_equal(pen_host_ranks(&membership, 0, PEN_NONE).first, 0);
  assert_int_equal(pen_host_ranks(&membership, 2, PEN_NONE).first, 1);
  assert_int_equal(pen_host_ranks(&membership, 1, PEN_NONE).count, 0);
  assert_true(membership.held[0] && membership.held[2] && !membership.held[1]);
  assert_false(pen_membership_fall_back(&membership)); /* nothing more is lost */
  /* A host that comes back waits, and takes the place of the next one that is lost. */
  lose(&membership, 1, PEN_HOST_LIVES);
  lose(&membership, 2, PEN_HOST_LOST);
  assert_true(pen_membership_can_continue(&membership));
  assert_false(pen_membership_fall_back(&membership));
  lose(&membership, 1, PEN_HOST_LOST);
  assert_true(pen_membership_fall_back(&membership));
  assert_int_equal(pen_plan_index(&of, membership.current), 2);
  assert_int_equal(membership.places[0].host, 0);
  pen_membership_close(&membership);
}

static void assert_held(const struct pen_membership *membership, bool a, bool b, bool c) {
  assert_int_equal(membership->held[0], a);
  assert_int_equal(membership->held[1], b);
  assert_int_equal(membership->held[2], c);
}

/* The hosts that had ranks keep the states of the plan before until ranks of a fallback have
 * theirs, also where a second one is taken meanwhile; each command knows them. */
static void test_states_are_held_until_all_have_theirs(void **state) {
  (void)state;
  struct pen_plan of;
  struct pen_membership server, other;
  open_with_fallbacks(&server, &of, 0);
  open_with_fallbacks(&other, &of, 2);
  struct pen_membership *const both[] = {&server, &other};
  for (int i = 0; i < 2; i++) {
    for (uint32_t h = 3; h < 5; h++) {
      lose(both[i], h, PEN_HOST_LOST);
    }
    lose(both[i], 1, PEN_HOST_LOST);
  }
  assert_held(&server, false, false, false);
  assert_true(pen_membership_fall_back(&server));
  assert_held(&server, true, false, true);
  pen_membership_take_places(&other, server.current, server.places);
  assert_held(&other, true, false, true);
  lose(&server, 2, PEN_HOST_LOST);
  assert_true(pen_membership_fall_back(&server));
  assert_int_equal(pen_plan_index(&of, server.current), 2);
  assert_held(&server, true, false, true);
  pen_membership_release(&other);
  assert_held(&other, false, false, false);
  pen_membership_take_places(&other, other.current, server.places); /* the same plan */
  assert_held(&other, false, false, false);
  pen_membership_close(&server);
  pen_membership_close(&other);
}

/* The only host of a fallback is lost: the first that waits serves. */
static void test_waiting_hosts_go_on_alone(void **state) {
  (void)state;
  struct pen_plan of;
  struct pen_membership membership;
  open_with_fallbacks(&membership, &of, 4);
  membership.current = &of.fallbacks[1];
  lose(&membership, 0, PEN_HOST_LOST);
  assert_false(pen_membership_has_ranks(&membership));
  assert_true(pen_membership_can_continue(&membership));
  assert_int_equal(pen_membership_server(&membership), 1);
  lose(&membership, 1, PEN_HOST_SILENT);
  lose(&membership, 2, PEN_HOST_LOST);
  lose(&membership, 3, PEN_HOST_LOST);
  assert_int_equal(pen_membership_server(&membership), 4);
  assert_false(pen_membership_can_continue(&membership)); /* the silent one is the first */
  pen_membership_close(&membership);
}

/* As above: never do both parts go on, nor with a fallback. */
static void test_fallbacks_go_on_in_one_part(void **state) {
  (void)state;
  for (uint32_t part = 1; part < 31; part++) {
    uint32_t going = 0;
    for (uint32_t side = 0; side < 2; side++) {
      struct pen_plan of;
      struct pen_membership membership;
      open_with_fallbacks(&membership, &of, 0);
      for (uint32_t h = 0; h < 5; h++) {
        lose(&membership, h, (part >> h & 1) == side ? PEN_HOST_LIVES : PEN_HOST_SILENT);
      }
      going += pen_membership_can_continue(&membership);
      pen_membership_close(&membership);
    }
    assert_in_range(going, 0, 1);
  }
}

static void test_the_newest_state_that_all_have(void **state) {
  (void)state;
  /* The second host is new: the third has the copies of the one before. */
  const struct pen_start_offer offers[] = {
      {.host = 0, .hosts = 3, .steps = {7, 8, 6}, .mirrored = {5, 6}, .saved_step = 4},
      {.host = 1, .hosts = 3, .restarts = 2},
      {.host = 2, .hosts = 3, .steps = {6, 7, 5}, .mirrored = {6, 5}}};
  const struct pen_start_state all = pen_start_state_of(offers, 3);
  assert_int_equal(all.memory_step, 6);
  assert_int_equal(all.saved_step, 4);
  assert_int_equal(all.restarts, 2);
  struct pen_start_offer others[] = {offers[0], offers[1], offers[2]};
  /* Without step 6 of the second host there is step 5, which the first no longer has. */
  others[2].mirrored[0] = 0;
  assert_int_equal(pen_start_state_of(others, 3).memory_step, 0);
  others[1].mirrored[0] = 5;
  assert_int_equal(pen_start_state_of(others, 3).memory_step, 5);
  assert_int_equal(pen_start_state_of(&offers[1], 1).memory_step, 0);
}

/* With a command a rank, those of a host have different states. */
static void test_commands_of_one_host(void **state) {
  (void)state;
  const struct pen_start_offer offers[] = {{.host = 0, .hosts = 2, .steps = {3, 4}},
                                           {.host = 0, .hosts = 2, .steps = {3, 2}},
                                           {.host = 1, .hosts = 2, .steps = {4, 3}}};
  assert_int_equal(pen_start_state_of(offers, 3).memory_step, 3);
}

/* Of three hosts the second is lost, and a fallback is taken: its states are on the third. */
static void test_states_of_a_lost_host(void **state) {
  (void)state;
  struct pen_start_offer offers[] = {
      {.host = 0, .hosts = 3, .held = 1, .steps = {7, 8}, .mirrored = {6, 7}},
      {.host = 2, .hosts = 3, .held = 1, .steps = {8, 7}, .mirrored = {7, 6}},
      {.host = PEN_NONE, .hosts = 3}};
  assert_int_equal(pen_start_state_of(offers, 3).memory_step, 7);
  assert_true(pen_start_offer_has(&offers[1], 1, 7));
  assert_false(pen_start_offer_has(&offers[0], 1, 7));
  offers[1].mirrored[0] = 0;
  assert_int_equal(pen_start_state_of(offers, 3).memory_step, 0); /* step 6 is not on the first */
  offers[1].mirrored[0] = 7;
  offers[1].plan = 1;
  assert_int_equal(pen_start_state_of(offers, 3).memory_step, 0);
  offers[0].plan = 1;
  assert_int_equal(pen_start_state_of(offers, 3).memory_step, 7);
  assert_int_equal(pen_start_state_of(offers, 3).memory_plan, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_the_host_of_rank_0_serves),
      cmocka_unit_test(test_a_spare_takes_the_ranks_of_a_lost_host),
      cmocka_unit_test(test_one_part_of_a_run_goes_on),
      cmocka_unit_test(test_never_do_two_parts_go_on),
      cmocka_unit_test(test_the_first_fallback_that_fits),
      cmocka_unit_test(test_states_are_held_until_all_have_theirs),
      cmocka_unit_test(test_waiting_hosts_go_on_alone),
      cmocka_unit_test(test_fallbacks_go_on_in_one_part),
      cmocka_unit_test(test_the_newest_state_that_all_have),
      cmocka_unit_test(test_states_of_a_lost_host),
      cmocka_unit_test(test_commands_of_one_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
