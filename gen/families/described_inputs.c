/* described_inputs.c: the inputs of the step of a description (see described_inputs.h).
 *
 * An input is declared once for each use: as ids, as targets, as values, as values in f32. Every
 * stage that has a reader gets it, by an op of its own. */
#include "gen/families/described_inputs.h"

#include "gen/base/arena.h"
#include "gen/families/language.h"
#include "gen/model/blocks.h"
#include "gen/model/builder.h"

/* A use of an input that data have by its name. */
struct named_use {
  struct pen_declared declared; /* the first member: what the graph knows */
  int op;                       /* TOKENS, TARGETS or INPUT */
  uint32_t number;              /* the input's in the plan, from 1 */
  uint64_t width;
  bool of_samples; /* it has no tokens */
};

static uint32_t emit_named(struct pen_graph *graph, const struct pen_declared *declared) {
  const struct named_use *use = (const struct named_use *)(const void *)declared;
  if (use->op == PEN_OP_TARGETS && graph->topology->generates)
    return pen_op_targets(graph, declared);
  const int64_t rows = use->of_samples ? graph->rows / graph->topology->sequence : graph->rows;
  const uint8_t dtype = graph->dtype;
  if (declared->dtype == PEN_F32) graph->dtype = PEN_F32;
  const uint32_t value =
      pen_op_input(graph, use->op, declared->name, use->number, rows, (int64_t)use->width);
  graph->dtype = dtype;
  return value;
}

/* Inputs of token files: any stage may read them. */
static const struct pen_declared of_token_file[] = {
    [PEN_SOURCE_TOKENS] = {"tokens", "batch sequence", 0, PEN_I32, PEN_TO_EVERY, pen_op_tokens,
                           NULL},
    [PEN_SOURCE_TARGETS] = {"targets", "batch predicting", 0, PEN_I32, PEN_TO_EVERY, pen_op_targets,
                            NULL},
};

static bool ends_with_logits(const struct pen_topology *topology) {
  return topology->generates || topology->scores;
}
const struct pen_declared pen_described_text_targets = {
    "targets", "batch predicting", 0, PEN_I32, PEN_TO_EVERY, pen_op_targets, ends_with_logits};

static const struct pen_declared *declare_named(const struct pen_described_input *input,
                                                uint32_t number, enum pen_input_use use) {
  static const struct {
    int op;
    uint8_t dtype;
    const char *extents;
  } of[PEN_INPUT_USES] = {
      [PEN_USED_AS_IDS] = {PEN_OP_TOKENS, PEN_I32, "batch sequence"},
      [PEN_USED_AS_TARGETS] = {PEN_OP_TARGETS, PEN_I32, "batch predicting"},
      [PEN_USED_AS_VALUES] = {PEN_OP_INPUT, PEN_OF_MODEL, "batch sequence"},
      [PEN_USED_AS_F32] = {PEN_OP_INPUT, PEN_F32, "batch sequence"},
  };
  const char *extents = input->has_tokens ? of[use].extents : "batch";
  struct named_use *named = pen_new(1, sizeof *named);
  *named = (struct named_use){
      .declared = {.name = input->name,
                   .extents = of[use].op == PEN_OP_INPUT || input->width > 1
                                  ? pen_text("%s %llu", extents, (unsigned long long)input->width)
                                  : extents,
                   .split = 0,
                   .dtype = of[use].dtype,
                   .receivers = PEN_TO_EVERY,
                   .emit = emit_named},
      .op = of[use].op,
      .number = number,
      .width = input->width,
      .of_samples = !input->has_tokens};
  return &named->declared;
}

const struct pen_declared *pen_described_declared(const struct pen_description *d, uint32_t index,
                                                  enum pen_input_use use) {
  struct pen_described_input *input = &d->input[index];
  uint32_t number = 1;
  for (uint32_t i = 0; i < index; i++) number += d->input[i].from == PEN_SOURCE_NAME;
  if (input->from == PEN_SOURCE_STARTS) return &pen_language_starts;
  if (!input->declared[use])
    input->declared[use] = input->from == PEN_SOURCE_NAME ? declare_named(input, number, use)
                                                          : &of_token_file[input->from];
  return input->declared[use];
}

void pen_described_limit(const struct pen_description *d, uint32_t index, uint64_t limit) {
  struct pen_described_input *input = &d->input[index];
  if (input->limit == 0 || limit < input->limit) input->limit = limit;
}

const struct pen_declared *const *pen_described_declared_list(const struct pen_description *d) {
  const struct pen_declared **list = pen_new(d->input_count * PEN_INPUT_USES + 3, sizeof *list);
  size_t count = 0;
  for (int from = 0; from <= PEN_SOURCE_NAME; from++) /* tokens and targets first */
    for (size_t i = 0; i < d->input_count; i++)
      for (int use = 0; use < PEN_INPUT_USES; use++)
        if ((int)d->input[i].from == from && d->input[i].declared[use])
          list[count++] = d->input[i].declared[use];
  list[count++] = &pen_language_starts;
  if (d->share_count > 0) list[count] = &pen_described_text_targets;
  return list;
}
