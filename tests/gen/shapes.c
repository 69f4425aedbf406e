/* shapes.c: the named tensors at stage boundaries: the predictions equal the plans; wrong families
 * are refused with the name of the tensor. */
#include <stdio.h>
#include <sys/wait.h>

#include <jansson.h>

#include "gen/views/shapes_json.h"
#include "gen/model/builder.h"
#include "gen/model/model.h"
#include "gen/model/stage_io.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/partition/partition.h"
#include "gen/topology/topology.h"
#include "runtime/plan/plan.h"
#include "tests/support/plan_fixture.h"

/* ---- against plans ---- */

static uint64_t bytes_of(const struct pen_graph *graph, uint32_t value) {
  return value == PEN_NONE ? 0 : graph->value[value].bytes;
}

/* The predicted bytes of a boundary, or 0 if there is none. */
static uint64_t predicted(const struct pen_stage_io *shapes, uint32_t stage, int64_t from,
                          int64_t to, const char *ending) {
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < shapes->count; i++) {
    const struct pen_stage_tensor *b = &shapes->tensor[i];
    bool gradient = strstr(b->name, ".grad") != NULL;
    if (b->stage == stage && b->from == from && b->to == to && gradient == (*ending != 0))
      bytes += b->shape.bytes;
  }
  return bytes;
}

/* Stages built from a topology have the predicted tensors, and no other inputs. */
static void check_stages(const struct pen_topology *topology) {
  const struct pen_partition *p = partition_topology(topology);
  struct pen_stage_io shapes = pen_stage_io_of(topology, &p->stages);
  struct pen_graph **graph = pen_graphs_of(topology, &p->stages, true);
  uint32_t inputs = 0, listed = 0;
  for (uint32_t s = 0; s < p->stage_count; s++) {
    if (s)
      assert_int_equal(bytes_of(graph[s], graph[s]->input),
                       predicted(&shapes, s, (int64_t)s - 1, s, ""));
    assert_int_equal(bytes_of(graph[s], graph[s]->output), predicted(&shapes, s, s, s + 1, ""));
    assert_int_equal(bytes_of(graph[s], graph[s]->output_gradient),
                     predicted(&shapes, s, s + 1, s, ".grad"));
    if (graph[s]->input != PEN_NONE)
      assert_int_equal(predicted(&shapes, s, s, (int64_t)s - 1, ".grad"),
                       bytes_of(graph[s], graph[s]->input));
    for (size_t k = 0; k < graph[s]->datum_count; k++, inputs++) {
      const struct pen_datum *datum = &graph[s]->datum[k];
      for (uint32_t i = 0; i < shapes.count; i++)
        if (shapes.tensor[i].stage == s && shapes.tensor[i].declared == datum->declared) {
          assert_int_equal(shapes.tensor[i].shape.bytes, graph[s]->value[datum->value].bytes);
          assert_true(shapes.tensor[i].from < 0);
          listed++;
        }
    }
  }
  assert_int_equal(inputs, listed);
  for (uint32_t i = 0; i < shapes.count; i++) listed -= shapes.tensor[i].from < 0;
  assert_int_equal(listed, 0);
}

static void shapes_equal_those_of_plans(void **state) {
  (void)state;
  static const char *const cuts[] = {"", "partition = { unit = \"block\"; };",
                                     "partition = { unit = \"block\"; balance = \"time\"; };"};
  for (size_t cut = 0; cut < 3; cut++)
    for (unsigned ranks = 1; ranks <= 4; ranks++) {
      check_stages(read_topology(
          pen_text("%s%s", topology_text("llama", "1f1b", ranks, 1, 4, ""), cuts[cut])));
      check_stages(read_topology(
          pen_text("%s%s", topology_text("mlp", "1f1b", ranks, 2, 3, ""), cuts[cut])));
    }
}

/* Tokens go to the first stage, targets to the last, mlp's y to every one; known sizes. */
static void inputs_go_where_they_are_read(void **state) {
  (void)state;
  const struct pen_topology *t = read_topology(topology_text("llama", "1f1b", 3, 1, 4, ""));
  struct pen_stage_io shapes = pen_stage_io_of(t, &partition_topology(t)->stages);
  uint32_t tokens = 0, targets = 0, tables = 0;
  for (uint32_t i = 0; i < shapes.count; i++) {
    const struct pen_stage_tensor *b = &shapes.tensor[i];
    if (!strcmp(b->name, "tokens")) {
      assert_int_equal(b->stage, 0);
      assert_int_equal(b->shape.whole[0], 8);
      assert_int_equal(b->shape.extent[0], 2);
      assert_int_equal(b->shape.bytes, 2 * 8 * 4);
      tokens++;
    }
    if (!strcmp(b->name, "targets")) targets += b->stage == 2 ? 1 : 100;
    if (!strcmp(b->name, "rope_table")) { /* replicated: whole in every microbatch */
      assert_int_equal(b->shape.extent[0], b->shape.whole[0]);
      assert_int_equal(b->from, PEN_FROM_START);
      tables++;
    }
    if (!strcmp(b->name, "hidden_states.grad")) assert_true(b->from == b->to + 1);
  }
  assert_int_equal(tokens, 1);
  assert_int_equal(targets, 1);
  assert_int_equal(tables, 3);
  t = read_topology(topology_text("mlp", "1f1b", 3, 1, 4, ""));
  shapes = pen_stage_io_of(t, &partition_topology(t)->stages);
  uint32_t y[3] = {0};
  for (uint32_t i = 0; i < shapes.count; i++)
    if (!strcmp(shapes.tensor[i].name, "y")) y[shapes.tensor[i].stage]++;
  assert_true(y[0] == 1 && y[1] == 1 && y[2] == 1);
}

/* Without training there are no gradients. */
static void inference_has_no_gradients(void **state) {
  (void)state;
  const struct pen_topology *t = read_topology(topology_text("llama", "inference", 3, 1, 4, ""));
  struct pen_stage_io shapes = pen_stage_io_of(t, &partition_topology(t)->stages);
  for (uint32_t i = 0; i < shapes.count; i++) assert_null(strstr(shapes.tensor[i].name, ".grad"));
  assert_int_equal(predicted(&shapes, 1, 0, 1, ""), 2 * 8 * 32 * 4);
}

static void printed_as_json(void **state) {
  (void)state;
  const struct pen_topology *t = read_topology(topology_text("llama", "1f1b", 2, 1, 4, ""));
  const struct pen_partition *p = partition_topology(t);
  struct pen_stage_io shapes = pen_stage_io_of(t, &p->stages);
  char *text = NULL;
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  pen_shapes_json(file, t, p, &shapes);
  fclose(file);
  json_t *root = json_loads(text, 0, NULL), *stages = json_object_get(root, "stages");
  assert_non_null(root);
  assert_int_equal(json_array_size(stages), 2);
  size_t tensors = 0;
  for (size_t s = 0; s < 2; s++)
    tensors += json_array_size(json_object_get(json_array_get(stages, s), "tensors"));
  assert_int_equal(tensors, shapes.count);
  json_t *first = json_array_get(json_object_get(json_array_get(stages, 0), "tensors"), 0);
  assert_string_equal(json_string_value(json_object_get(first, "tensor")), "tokens");
  assert_string_equal(json_string_value(json_object_get(first, "from")), "data");
  assert_int_equal(json_integer_value(json_object_get(first, "to")), 0);
  assert_string_equal(json_string_value(json_object_get(first, "dtype")), "i32");
  assert_int_equal(json_integer_value(json_array_get(json_object_get(first, "shape"), 0)), 2);
  assert_int_equal(json_integer_value(json_object_get(first, "bytes")), 64);
  json_decref(root);
  free(text);
}

/* ---- wrong families ---- */

static const struct pen_declared wide = {
    .name = "wide", .extents = "batch sequence ffn", .split = 0, .dtype = PEN_F32};
static const struct pen_declared narrow = {
    .name = "narrow", .extents = "batch sequence hidden", .split = 0, .dtype = PEN_F32};
static const struct pen_declared narrow_half = {
    .name = "narrow", .extents = "batch sequence hidden", .split = 0, .dtype = PEN_BF16};
static const struct pen_declared narrow_whole = {.name = "narrow",
                                                 .extents = "batch sequence hidden",
                                                 .split = PEN_REPLICATED,
                                                 .dtype = PEN_F32};
static const struct pen_declared by_tokens = {
    .name = "by_tokens", .extents = "batch sequence hidden", .split = 1, .dtype = PEN_F32};
static const struct pen_declared beyond = {
    .name = "beyond", .extents = "batch hidden", .split = 2, .dtype = PEN_F32};
static const struct pen_declared unknown = {
    .name = "unknown", .extents = "batch sequence depth", .split = 0, .dtype = PEN_F32};
static const struct pen_declared long_one = {
    .name = "long", .extents = "batch 2 3 4 5", .split = 0, .dtype = PEN_F32};

static uint32_t make_x(struct pen_graph *graph, const struct pen_declared *declared) {
  (void)declared;
  return pen_op_normal(graph, "x", graph->topology->model_hidden, 0);
}
static const struct pen_declared x = {
    "x", "batch sequence hidden", 0, PEN_F32, PEN_TO_FIRST, make_x, NULL};
static const struct pen_declared x_last = {
    "x_last", "batch sequence hidden", 0, PEN_F32, PEN_TO_LAST, make_x, NULL};
static const struct pen_declared x_wide = {
    "x_wide", "batch sequence ffn", 0, PEN_F32, PEN_TO_FIRST, make_x, NULL};
static const struct pen_declared x_by_tokens = {
    "x_by_tokens", "batch sequence hidden", 1, PEN_F32, PEN_TO_FIRST, make_x, NULL};

static uint32_t start(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)layer, (void)value;
  return pen_graph_data(graph, &x);
}
static uint32_t start_wide(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)layer, (void)value;
  return pen_graph_data(graph, &x_wide);
}
static uint32_t start_by_tokens(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)layer, (void)value;
  return pen_graph_data(graph, &x_by_tokens);
}
static uint32_t same(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)layer;
  return pen_op_scale(graph, "same", value, 2);
}
static uint32_t reads_x(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)layer;
  return pen_op_add(graph, "sum", value, pen_graph_data(graph, &x));
}
static uint32_t widens(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  int64_t hidden = graph->topology->model_hidden, ffn = graph->topology->model_ffn;
  return pen_op_linear(
      graph, "wide", value,
      pen_graph_weight(graph, pen_text("w%u", layer), ffn, hidden, PEN_INITIAL_NORMAL, 1),
      PEN_NONE);
}
static uint32_t forgets(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)graph, (void)layer, (void)value;
  return PEN_NONE;
}
static uint32_t end(struct pen_graph *graph, uint32_t layer, uint32_t value) {
  (void)layer;
  pen_op_sum_loss(graph, value);
  return PEN_NONE;
}

/* A family of three kinds of block, and the expected message for two stages of two layers and three
 * microbatches. */
static const struct wrong {
  struct pen_block_kind before[2], layer[2], after[2];
  const struct pen_declared *input[3];
  const char *message; /* null: nothing is wrong */
} wrongs[] = {
    {{{"start", start, 0, &narrow, {&x}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     NULL},
    /* neighbours */
    {{{"start", start, 0, &narrow, {&x}}},
     {{"same", same, &wide, &wide, {0}}},
     {{"end", end, &wide, 0, {0}}},
     {&x},
     "tensor narrow does not match: start gives narrow, (2, 8, 32) of f32, but layers.0.same takes "
     "wide, (2, 8, 48) of f32"},
    {{{"start", start, 0, &narrow, {&x}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow_half, 0, {0}}},
     {&x},
     "tensor narrow does not match: layers.1.same gives narrow, (2, 8, 32) of f32, but end takes "
     "narrow, (2, 8, 32) of bf16"},
    {{{"start", start, 0, &narrow, {&x}}},
     {{"same", same, &narrow, &narrow_whole, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     "tensor narrow does not match: layers.0.same gives narrow, (6, 8, 32) of f32, but "
     "layers.1.same "
     "takes narrow, (2, 8, 32) of f32"},
    {{{"start", start, 0, NULL, {&x}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     "tensor narrow does not match: start gives nothing, but layers.0.same takes narrow"},
    {{{"start", start, 0, &narrow, {&x}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, &narrow, {0}}},
     {&x},
     "tensor narrow does not match: end gives narrow, (2, 8, 32) of f32, but the end takes "
     "nothing"},
    /* splits */
    {{{"start", start, 0, &by_tokens, {&x}}},
     {{"same", same, &by_tokens, &by_tokens, {0}}},
     {{"end", end, &by_tokens, 0, {0}}},
     {&x},
     "tensor by_tokens is split by its extent 1, which is 8, not a multiple of the 3 microbatches"},
    {{{"start", start, 0, &beyond, {&x}}},
     {{"same", same, &beyond, &beyond, {0}}},
     {{"end", end, &beyond, 0, {0}}},
     {&x},
     "tensor beyond is split by its extent 2, but has 2"},
    {{{"start", start_by_tokens, 0, &narrow, {&x_by_tokens}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x_by_tokens},
     "tensor x_by_tokens is split by its extent 1, which is 8, not a multiple of the 3 "
     "microbatches"},
    /* words */
    {{{"start", start, 0, &unknown, {&x}}},
     {{"same", same, &unknown, &unknown, {0}}},
     {{"end", end, &unknown, 0, {0}}},
     {&x},
     "tensor unknown has an extent that is not a number: \"depth\""},
    {{{"start", start, 0, &long_one, {&x}}},
     {{"same", same, &long_one, &long_one, {0}}},
     {{"end", end, &long_one, 0, {0}}},
     {&x},
     "tensor long has more than 4 extents: \"batch 2 3 4 5\""},
    /* who gets an input */
    {{{"start", start, 0, &narrow, {&x}}},
     {{"reads", reads_x, &narrow, &narrow, {&x}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     "tensor x goes only to the first stage, but block layers.1.reads of stage 1 reads it"},
    {{{"start", start, 0, &narrow, {&x, &x_last}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x, &x_last},
     "tensor x_last goes only to the last stage, but block start of stage 0 reads it"},
    {{{"start", start, 0, &narrow, {&x}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {NULL},
     "tensor x is read by block start, but is not among the family's inputs"},
    {{{"start", start, 0, &narrow, {0}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     "tensor x is read by block start, which does not declare it"},
    /* what blocks emit */
    {{{"start", start, 0, &narrow, {&x}}},
     {{"widens", widens, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     "tensor narrow is declared as (2, 8, 32) of f32, but block layers.0.widens gives 768 elements "
     "of f32"},
    {{{"start", start_wide, 0, &narrow, {&x_wide}}},
     {{"same", same, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x_wide},
     "tensor x_wide is declared as (2, 8, 48) of f32, but block start makes 512 elements of f32"},
    {{{"start", start, 0, &narrow, {&x}}},
     {{"forgets", forgets, &narrow, &narrow, {0}}},
     {{"end", end, &narrow, 0, {0}}},
     {&x},
     "tensor narrow is declared, but block layers.0.forgets gives none"},
};

/* Runs the passes on a family in a child; returns its message and status. */
static int run_family(const struct wrong *wrong, const struct pen_topology *topology,
                      char said[500]) {
  struct pen_family family = {.name = "wrong",
                              .before = wrong->before,
                              .layer = wrong->layer,
                              .after = wrong->after,
                              .layers_prefix = "layers.",
                              .input = wrong->input};
  int ends[2], status;
  assert_int_equal(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    const struct pen_partition *p = pen_partition(topology, &family, NULL);
    pen_stage_io_of(topology, &p->stages);
    pen_graphs_of(topology, &p->stages, true);
    _exit(0);
  }
  close(ends[1]);
  ssize_t bytes = 0, more;
  while ((more = read(ends[0], said + bytes, (size_t)(499 - bytes))) > 0) bytes += more;
  said[bytes] = 0;
  close(ends[0]);
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void wrong_families_are_refused(void **state) {
  (void)state;
  struct pen_topology *topology = read_topology(topology_text("mlp", "1f1b", 2, 1, 3, ""));
  topology->path = "test.cfg";
  topology->partition_balance = PEN_BALANCE_COUNT; /* which needs no costs */
  for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
    char said[500];
    int status = run_family(&wrongs[i], topology, said);
    const char *wanted = wrongs[i].message;
    if (wanted ? status != PEN_EXIT_TOPOLOGY || !strstr(said, "test.cfg: model.family = wrong: ") ||
                     !strstr(said, wanted)
               : status != 0)
      fail_msg("row %zu: status %d, \"%s\", wanted \"%s\"", i, status, said, wanted ? wanted : "");
  }
}

static int free_all(void **state) {
  (void)state;
  pen_free_all();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(shapes_equal_those_of_plans),
      cmocka_unit_test(inputs_go_where_they_are_read), cmocka_unit_test(inference_has_no_gradients),
      cmocka_unit_test(printed_as_json), cmocka_unit_test(wrong_families_are_refused)};
  return cmocka_run_group_tests(tests, NULL, free_all);
}
