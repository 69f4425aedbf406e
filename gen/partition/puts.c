/* puts.c: what the collectives of a stage move (see puts.h). A replica owns one shard of each
 * tensor (runtime/plan/shard.h), and a member of SAME_SHARD a shard of that. */
#include "gen/partition/puts.h"

#include "gen/base/arena.h"
#include "gen/model/splits.h"
#include "gen/model/unit_collectives.h"
#include "gen/partition/training.h"
#include "runtime/plan/shard.h"

bool pen_weight_is_sharded(uint8_t sharding, bool has_bf16, bool tied, int dtype) {
  if (tied || (dtype == PEN_BF16 && !has_bf16)) return false;
  return sharding == PEN_SHARD_WEIGHTS ||
         (sharding != PEN_SHARD_NONE && dtype == PEN_F32 && has_bf16);
}

uint64_t pen_staging_bytes(const struct pen_partition *partition, const struct pen_put *put,
                           const struct pen_weight *weight) {
  const uint64_t shard =
      pen_largest_in(pen_division_of(weight, pen_group_size(partition, PEN_SHARD)));
  if (put->kind != PEN_PUT_ADD) return 0;
  return put->group == PEN_SHARD
             ? pen_shard_bytes(shard, 1)
             : pen_shard_bytes(shard, pen_group_size(partition, PEN_SAME_SHARD));
}

/* ---- actions ---- */

static void add(struct pen_stage_puts *list, struct pen_put row, uint32_t value) {
  PEN_RESERVE(list->put, list->count + 1);
  list->put[list->count++] = (struct pen_stage_put){row, value};
}

static struct pen_put elements(const struct pen_put_source *of, int kind, int group, uint8_t dtype,
                               size_t weight) {
  return (struct pen_put){.kind = (uint8_t)kind,
                          .group = (uint8_t)group,
                          .dtype = dtype,
                          .weight = of->first_weight + (uint32_t)weight};
}

/* The value, and its bf16 copy, where all keep them whole. */
static void add_values(const struct pen_put_source *of, size_t weight,
                       struct pen_stage_puts *list) {
  const bool tied = pen_weight_is_tied(of->graph, (uint32_t)weight);
  const struct pen_weight *reader = tied && of->head->tied != PEN_NONE
                                        ? &of->head->weight[of->head->tied]
                                        : &of->graph->weight[weight];
  const bool has_bf16 = reader->bf16_offset != UINT64_MAX;
  for (uint8_t dtype = PEN_F32; dtype <= PEN_BF16; dtype++)
    if ((dtype == PEN_F32 || has_bf16) &&
        !pen_weight_is_sharded((uint8_t)of->partition->sharding, has_bf16, tied, dtype))
      add(list, elements(of, PEN_PUT_READ, PEN_SHARD, dtype, weight), PEN_NONE);
}

static void add_gradient(const struct pen_put_source *of, int kind, size_t weight,
                         struct pen_stage_puts *list) {
  const bool grouped = kind == PEN_REDUCE_GROUPS || kind == PEN_GATHER_GROUPS,
             adds = kind == PEN_REDUCE_GROUPS || kind == PEN_REDUCE_SCATTER;
  struct pen_put row = elements(of, adds ? PEN_PUT_ADD : PEN_PUT_READ,
                                grouped ? PEN_SAME_SHARD : PEN_SHARD, PEN_F32, weight);
  row.from_sharded = row.to_sharded =
      of->partition->reduces_microbatches && of->partition->sharding >= PEN_SHARD_GRADIENTS;
  add(list, row, PEN_NONE);
}

/* [value]: a program reads it. */
static bool *find_read_values(const struct pen_graph *graph) {
  bool *read = pen_new(graph->value_count + 1, sizeof *read);
  for (int p = 0; p < PEN_PROGRAMS; p++)
    for (size_t i = 0; i < graph->program[p].count; i++)
      for (int k = 0; k < PEN_OPERANDS_MAX; k++)
        if (graph->program[p].op[i].operand[k] != PEN_NONE)
          read[graph->program[p].op[i].operand[k]] = true;
  return read;
}

static void add_unsharded(const struct pen_put_source *of, struct pen_stage_puts *list) {
  bool *read = find_read_values(of->graph);
  for (uint32_t v = 0; v < of->graph->value_count; v++) {
    const struct pen_value *value = &of->graph->value[v];
    if (!read[v] || !pen_value_is_unsharded(of->partition, of->graph, v)) continue;
    struct pen_put row = elements(of, PEN_PUT_READ, PEN_SHARD, value->dtype, value->weight);
    row.from_sharded = true;
    add(list, row, v);
  }
  pen_free(read);
}

void pen_list_puts(const struct pen_put_source *of, int kind, struct pen_stage_puts *list) {
  if (kind == PEN_UNSHARD) add_unsharded(of, list);
  if (kind == PEN_UNSHARD || !pen_kind_reads_peers(kind)) return;
  for (size_t w = 0; w < of->graph->weight_count; w++) {
    if (!pen_graph_has_weight(of->graph, w) ||
        !pen_sums_gradient(&of->graph->weight[w], PEN_DATA) || pen_is_tied_head(of->graph, w))
      continue;
    if (kind == PEN_ALL_GATHER_WEIGHT)
      add_values(of, w, list);
    else
      add_gradient(of, kind, w, list);
  }
}

/* ---- ops ---- */

/* The blocks of an exchange. Slots of a member begin where the layout places them. */
static struct pen_put blocks(const struct pen_op *op) {
  const uint64_t element_bytes = pen_dtype_bytes(op->dtype);
  struct pen_put put = {.kind = PEN_PUT_WRITE,
                        .group = PEN_TENSOR,
                        .dtype = op->dtype,
                        .weight = PEN_NONE,
                        .count = 1,
                        .bytes = (uint64_t)op->dim[0] * element_bytes};
  if (op->kind == PEN_OP_ALL_GATHER_PARTIAL) return put; /* all of x */
  put.count = (uint64_t)op->dim[0];
  put.bytes = (uint64_t)op->dim[1] * element_bytes;
  const uint64_t sequence_bytes = (uint64_t)op->dim[2] * put.bytes;
  if (op->kind == PEN_OP_ALL_TO_ALL_PARTIAL) { /* of each sequence the receiver's tokens */
    put.from_stride = sequence_bytes;
    put.to_stride = put.from_member = put.bytes;
  } else { /* the tokens of each sequence to their place between those of the others */
    put.from_stride = put.to_member = put.bytes;
    put.to_stride = sequence_bytes;
  }
  return put;
}

struct pen_put pen_put_of_op(const struct pen_put_source *of, const struct pen_op *op) {
  const bool adds = op->kind == PEN_OP_REDUCE_SCATTER;
  if (!adds && op->kind != PEN_OP_ALL_GATHER) return blocks(op);
  const struct pen_value *kept = &of->graph->value[op->operand[adds ? 1 : 0]];
  struct pen_put put =
      elements(of, adds ? PEN_PUT_ADD : PEN_PUT_READ, PEN_SHARD, kept->dtype, kept->weight);
  put.from_sharded = !adds;
  put.to_sharded = adds && of->partition->sharding >= PEN_SHARD_GRADIENTS;
  return put;
}
