/* groups.c: process groups: a process's number is what groups.def says, and each member of a group
 * is the process that the formula for its kind gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/plan/plan.h"

enum { DATA_MOST = 12, PIPELINE_MOST = 5, TENSOR_MOST = 4 };

/* Calls a function for each plan of up to so many processes, with each number of shards. */
static void each_plan(void (*check)(const struct pen_plan *plan)) {
  for (uint32_t d = 1; d <= DATA_MOST; d++) {
    for (uint32_t s = 1; s <= d; s++) {
      for (uint32_t p = 1; p <= PIPELINE_MOST && d % s == 0; p++) {
        for (uint32_t t = 1; t <= TENSOR_MOST; t *= 2) {
          check(&(const struct pen_plan){
              .tensor_ranks = t, .rank_count = p, .replica_count = d, .shard_ranks = s});
        }
      }
    }
  }
}

static void check_numbers(const struct pen_plan *plan) {
  uint32_t global = 0;
  for (uint32_t d = 0; d < plan->replica_count; d++) {
    for (uint32_t p = 0; p < plan->rank_count; p++) {
      for (uint32_t t = 0; t < plan->tensor_ranks; t++, global++) {
        const struct pen_coordinates of = pen_coordinates_of(plan, global);
        assert_int_equal(pen_number_of(plan, of, UINT32_MAX), global);
        assert_int_equal(of.in[PEN_TENSOR], t);
        assert_int_equal(of.in[PEN_PIPELINE], p);
        assert_int_equal(of.in[PEN_DATA], d);
        assert_int_equal(pen_pipeline_index(plan, global), d * plan->tensor_ranks + t);
      }
    }
  }
  assert_int_equal(pen_process_count(plan), global);
}

static void numbers_are_coordinates_and_back(void **state) {
  (void)state, each_plan(check_numbers);
}

/* A member of a group whose members are processes of one replica, or of several. */
static void check_member(const struct pen_plan *plan, uint32_t global, int group, uint32_t member) {
  const uint32_t tensor = plan->tensor_ranks, stride = plan->rank_count * tensor,
                 shards = plan->shard_ranks, d = global / stride, within = global % stride;
  const uint32_t expected[PEN_GROUPS] = {
      [PEN_TENSOR] = global / tensor * tensor + member,
      [PEN_PIPELINE] = d * stride + member * tensor + global % tensor,
      [PEN_DATA] = member * stride + within,
      [PEN_SHARD] = (d / shards * shards + member) * stride + within,
      [PEN_SAME_SHARD] = (member * shards + d % shards) * stride + within};
  assert_int_equal(pen_group_process(plan, global, group, member), expected[group]);
  assert_int_equal(pen_group_member(plan, expected[group], group), member);
  assert_true(pen_in_group(plan, global, group, expected[group]));
}

static void check_members(const struct pen_plan *plan) {
  for (uint32_t global = 0; global < pen_process_count(plan); global++) {
    for (int group = 0; group < PEN_GROUPS; group++) {
      uint32_t members = 0;
      for (uint32_t other = 0; other < pen_process_count(plan); other++) {
        members += pen_in_group(plan, global, group, other);
      }
      assert_int_equal(members, pen_group_size(plan, group));
      for (uint32_t member = 0; member < members; member++) {
        check_member(plan, global, group, member);
      }
    }
  }
}

static void each_group_has_its_members(void **state) { (void)state, each_plan(check_members); }

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(numbers_are_coordinates_and_back),
      cmocka_unit_test(each_group_has_its_members),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
