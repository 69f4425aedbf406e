/* plans.c: small topologies, partitions and orders for tests. */
#include "tests/support/plans.h"

const char *tests_path(const char *name) {
  const char *folder = getenv("top_srcdir");
  return pen_text("%s/tests/%s", folder ? folder : ".", name);
}

struct pen_partition *make_partition(uint32_t ranks, uint32_t stages_per_rank,
                                     uint32_t microbatches, bool zigzag) {
  struct pen_partition *partition = pen_new(1, sizeof *partition);
  partition->rank_count = ranks;
  partition->tensor_ranks = partition->replica_count = partition->shard_ranks = 1;
  partition->stages_per_rank = stages_per_rank;
  partition->stage_count = ranks * stages_per_rank;
  partition->microbatch_count = microbatches;
  partition->stages.span = pen_new(partition->stage_count, sizeof *partition->stages.span);
  partition->rank_of = pen_new(partition->stage_count, sizeof *partition->rank_of);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++) {
    uint32_t place = stage % ranks;
    partition->stages.span[stage] =
        (struct pen_span){.first_layer = stage, .past_last_layer = stage + 1};
    partition->rank_of[stage] = zigzag && stage / ranks % 2 == 1 ? ranks - 1 - place : place;
  }
  return partition;
}

struct pen_partition *partition_topology(const struct pen_topology *topology) {
  const struct pen_family *family = pen_family_of(topology);
  if (!pen_partition_by_time(topology)) return pen_partition(topology, family, NULL);
  bool splits = pen_schedule_splits(pen_schedule_of(topology->pipeline_schedule), topology);
  return pen_partition(topology, family, pen_block_costs(topology, family, splits));
}

enum pen_schedule_kind schedule_named(const char *name) {
  int kind = 0;
  while (strcmp(pen_schedules[kind].name, name)) kind++;
  return (enum pen_schedule_kind)kind;
}

struct pen_topology *make_topology(const char *schedule, int warmup, bool zero_bubble) {
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  topology->path = topology->name = "test";
  topology->pipeline_schedule = schedule_named(schedule);
  topology->pipeline_warmup = warmup;
  topology->has_pipeline_warmup = warmup != 0;
  topology->pipeline_zero_bubble = zero_bubble;
  return topology;
}

struct pen_order *make_order(const char *schedule, int warmup, bool zero_bubble, uint32_t ranks,
                             uint32_t stages_per_rank, uint32_t microbatches,
                             struct pen_partition **partition) {
  const struct pen_schedule *row = pen_schedule_of(schedule_named(schedule));
  bool zigzag = row->placement == PEN_PLACEMENT_V;
  *partition = make_partition(ranks, stages_per_rank, microbatches, zigzag);
  if (!row->trains) return pen_compose_forward(*partition);
  return pen_compose(make_topology(schedule, warmup, zero_bubble), *partition);
}

struct pen_search *search_order(const struct pen_topology *topology,
                                const struct pen_partition *partition,
                                const struct pen_stage_cost *cost,
                                const struct pen_search_effort *effort) {
  const struct pen_cost_source source = {topology, NULL};
  const struct pen_cost_model model = pen_cost_model_of(&source, partition, NULL, cost);
  return pen_search(topology, partition, &pen_training_none, NULL, &model, effort, NULL, NULL);
}

char *order_text(const struct pen_order *order) {
  char *text = NULL, word[32];
  size_t bytes = 0;
  FILE *file = open_memstream(&text, &bytes);
  for (uint32_t rank = 0; rank < order->rank_count; rank++) {
    fprintf(file, "%u:", rank);
    for (uint32_t index = 0; index < order->count[rank]; index++) {
      const struct pen_compute *action = &order->action[rank][index];
      bool second = index > 0 && action[-1].overlaps;
      fprintf(file, "%c%s", second ? '|' : ' ',
              pen_action_format(word, action->kind, action->stage, action->microbatch));
    }
    fputc('\n', file);
  }
  fclose(file);
  return text;
}

uint64_t draw(uint64_t *seed, uint64_t below) {
  *seed ^= *seed >> 12;
  *seed ^= *seed << 25;
  *seed ^= *seed >> 27;
  return *seed * 0x2545F4914F6CDD1DULL % below;
}
