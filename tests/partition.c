/* partition.c: layers over stages, stages over ranks, by property over many sizes and against a few known answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gen/gen.h"

static const struct pen_partition *divide(int64_t ranks, int64_t stages_per_rank, int64_t layers, int64_t pre, int64_t post,
                                          const char *placement) {
  struct pen_topology topology = {.pipeline_ranks = ranks, .pipeline_stages_per_rank = stages_per_rank,
      .pipeline_microbatches = 3, .pipeline_placement = placement, .model_layers = layers,
      .partition_virtual_pre = pre, .partition_virtual_post = post};
  return pen_partition(&topology);
}

static int64_t count_of(const struct pen_partition *partition, uint32_t stage) {
  return (int64_t)partition->span[stage].past_last_layer - partition->span[stage].first_layer;
}

/* Spans are end to end, none is empty, and with virtual layers no stage has more than one above another, the early ones first. */
static void check_even(const struct pen_partition *partition, int64_t layers, int64_t pre, int64_t post) {
  uint32_t last = partition->stage_count - 1, next = 0;
  int64_t before = INT64_MAX, first = 0;
  for (uint32_t stage = 0; stage <= last; stage++) {
    assert_int_equal(partition->span[stage].first_layer, next);
    next = partition->span[stage].past_last_layer;
    assert_true(count_of(partition, stage) >= 1);
    int64_t share = count_of(partition, stage) + (stage == 0 ? pre : 0) + (stage == last ? post : 0);
    if (stage == 0) first = share;
    assert_true(share <= before && share >= first - 1);
    before = share;
  }
  assert_int_equal(next, layers);
}

static void layers_are_even(void **state) {
  (void)state;
  for (int64_t stages = 1; stages <= 12; stages++)
    for (int64_t layers = stages; layers <= 40; layers++)
      for (int64_t pre = 0; pre < 4; pre++)
        for (int64_t post = 0; post < 4; post++) {
          int64_t total = layers + pre + post, least = total / stages, extra = total % stages;
          if (stages > 1 && (least + (extra > 0) <= pre || least <= post)) continue; /* an empty stage: refused */
          check_even(divide(stages, 1, layers, pre, post, "loop"), layers, pre, post);
        }
}

static void known_spans(void **state) {
  (void)state;
  const struct pen_partition *p = divide(4, 1, 10, 0, 0, "loop"); /* 3 3 2 2 */
  assert_int_equal(count_of(p, 0), 3);
  assert_int_equal(count_of(p, 1), 3);
  assert_int_equal(count_of(p, 2), 2);
  assert_int_equal(count_of(p, 3), 2);
  p = divide(4, 1, 10, 1, 2, "loop"); /* 13 = 4 3 3 3; 3 3 3 1 */
  assert_int_equal(count_of(p, 0), 3);
  assert_int_equal(count_of(p, 1), 3);
  assert_int_equal(count_of(p, 2), 3);
  assert_int_equal(count_of(p, 3), 1);
  p = divide(1, 1, 3, 2, 2, "loop"); /* both come off the only stage */
  assert_int_equal(count_of(p, 0), 3);
}

static void lists_are_taken(void **state) {
  (void)state;
  int64_t list[] = {0, 5, 2, 0};
  struct pen_topology topology = {.pipeline_ranks = 2, .pipeline_stages_per_rank = 2, .pipeline_microbatches = 1,
      .pipeline_placement = "v", .model_layers = 7, .partition_virtual_pre = 9, .partition_layers = {4, list}};
  const struct pen_partition *partition = pen_partition(&topology);
  for (uint32_t stage = 0; stage < 4; stage++) assert_int_equal(count_of(partition, stage), list[stage]);
  assert_int_equal(partition->span[3].past_last_layer, 7);
}

/* Every rank holds stages_per_rank stages; a loop goes on to the next rank, a V turns on the rank where it arrived. */
static void stages_are_placed(void **state) {
  (void)state;
  for (uint32_t ranks = 1; ranks <= 9; ranks++)
    for (uint32_t per_rank = 1; per_rank <= 5; per_rank++) {
      const struct pen_partition *loop = divide(ranks, per_rank, ranks * per_rank, 0, 0, "loop");
      const struct pen_partition *v = divide(ranks, per_rank, ranks * per_rank, 0, 0, "v");
      uint32_t held[9] = {0}, stages = ranks * per_rank;
      assert_int_equal(v->rank_of[0], 0);
      for (uint32_t stage = 0; stage < stages; stage++) {
        assert_int_equal(loop->rank_of[stage], stage % ranks);
        assert_true(v->rank_of[stage] < ranks);
        held[v->rank_of[stage]]++;
        if (stage == 0) continue;
        int64_t step = (int64_t)v->rank_of[stage] - v->rank_of[stage - 1];
        int64_t wanted = stage % ranks == 0 ? 0 : stage / ranks % 2 ? -1 : 1;
        assert_int_equal(step, wanted);
        if (stage < 2 * ranks && stage >= ranks) assert_int_equal(v->rank_of[stage], 2 * ranks - 1 - stage);
      }
      for (uint32_t rank = 0; rank < ranks; rank++) assert_int_equal(held[rank], per_rank);
    }
}

static int free_all(void **state) {
  (void)state;
  pen_free_all();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(layers_are_even), cmocka_unit_test(known_spans),
                                     cmocka_unit_test(lists_are_taken), cmocka_unit_test(stages_are_placed)};
  return cmocka_run_group_tests(tests, NULL, free_all);
}
