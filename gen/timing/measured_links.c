/* measured_links.c: the costs of messages and collectives by their size (see measured_links.h).
 *
 * What lies between two measured sizes is in proportion; beyond the largest it rises with the
 * bytes.
 *
 * A message of transport shm is copied by its sender, after the action that makes it. The time for
 * the fewest bytes that were measured is the latency, which delays the arrival; what more bytes
 * take longer is the copy, which belongs to the action. With other transports all of it is latency.
 *
 * A collective of other ranks than those measured takes as much longer as each of its members sends
 * more: of the bytes of all, (ranks - 1) / ranks. */
#include "gen/timing/measured_links.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "gen/base/arena.h"
#include "gen/timing/costs_json.h"
#include "gen/model/pieces.h"

/* Rows of a list of the file, by size. */
struct size_times {
  const char *path, *list; /* "messages" */
  const json_t *rows;
};

static double row_number(const struct size_times *times, size_t index, const char *key) {
  return pen_costs_json_number(times->path, pen_text("%s[%zu].%s", times->list, index, key),
                               json_object_get(json_array_get(times->rows, index), key));
}

/* Each member's part of what a collective of so many ranks sends. */
static double sent_part(double ranks) { return ranks > 1 ? (ranks - 1) / ranks : 0; }

/* A row in milliseconds, for so many ranks (0: a message). */
static double row_ms(const struct size_times *times, size_t index, uint32_t ranks) {
  const double ms = row_number(times, index, "ms");
  const double measured = ranks ? sent_part(row_number(times, index, "ranks")) : 0;
  return measured > 0 ? ms * sent_part(ranks) / measured : ms;
}

/* The time for the fewest bytes that were measured, and for the bytes asked; both below 0: none. */
struct size_time {
  double least, time;
};

/* Of the rows whose `key` has the value `wanted`. */
static struct size_time time_of(const struct size_times *times, const char *key, const char *wanted,
                                uint32_t ranks, double bytes) {
  double least = INFINITY, below = -1, above = INFINITY;
  double least_ms = 0, below_ms = 0, above_ms = 0;
  for (size_t i = 0; i < json_array_size(times->rows); i++) {
    const char *text = json_string_value(json_object_get(json_array_get(times->rows, i), key));
    const double size = row_number(times, i, "bytes"), ms = row_ms(times, i, ranks);
    if (!text)
      pen_costs_json_fail(times->path, pen_text("%s[%zu].%s", times->list, i, key),
                          "must be a string");
    if (strcmp(text, wanted) != 0) continue;
    if (size < least) least = size, least_ms = ms;
    if (size <= bytes && size > below) below = size, below_ms = ms;
    if (size >= bytes && size < above) above = size, above_ms = ms;
  }
  if (isinf(least)) return (struct size_time){-1, -1};
  if (below < 0) return (struct size_time){least_ms, least_ms};
  if (isinf(above))
    return (struct size_time){least_ms, below > 0 ? below_ms * bytes / below : below_ms};
  const double part = above > below ? (bytes - below) / (above - below) : 0;
  return (struct size_time){least_ms, below_ms + part * (above_ms - below_ms)};
}

/* ---- messages ---- */

static double value_bytes(const struct pen_graph *graph, uint32_t value) {
  return value == PEN_NONE ? 0 : (double)graph->value[value].bytes;
}

/* The transports within a host, and between hosts. */
struct transports {
  const char *near, *far;
};

static struct transports transports_of(const struct pen_topology *topology) {
  const char *transport = topology->cluster_transport;
  const bool cuda = strcmp(topology->cluster_device, "cuda") == 0;
  if (strcmp(transport, "auto") != 0) return (struct transports){transport, transport};
  return cuda ? (struct transports){"ipc", "nccl"} : (struct transports){"shm", "ofi"};
}

static void add_messages(const struct size_times *messages, const struct pen_partition *partition,
                         const struct pen_graph *graph, struct pen_stage_cost *cost) {
  static const char key[] = "transport";
  const uint32_t s = graph->stage, *rank = partition->rank_of;
  const struct transports t = transports_of(graph->topology);
  const double out = value_bytes(graph, graph->output),
               back = value_bytes(graph, graph->input_gradient);
  const struct size_time forward = time_of(messages, key, t.near, 0, out),
                         backward = time_of(messages, key, t.near, 0, back),
                         between = time_of(messages, key, t.far, 0, fmax(out, back));
  const bool copies = strcmp(t.near, "shm") == 0;
  cost->send = fmax(0, copies ? forward.least : fmax(forward.time, backward.time));
  cost->send_host = between.time < 0 ? cost->send : between.time;
  if (copies && s + 1 < partition->stage_count && rank[s] != rank[s + 1])
    cost->forward += fmax(0, forward.time - forward.least);
  if (copies && s > 0 && rank[s] != rank[s - 1])
    cost->backward_input += fmax(0, backward.time - backward.least);
}

/* ---- collectives ---- */

/* Bytes of the gradients of a stage. */
static double gradient_bytes(const struct pen_graph *graph) {
  double bytes = 0;
  for (uint32_t w = 0; w < graph->weight_count; w++)
    if (!graph->weight[w].frozen && w != graph->tied && pen_graph_has_weight(graph, w))
      bytes += (double)graph->weight[w].count * sizeof(float);
  return bytes;
}

/* A cost for each stage, as in costs.reduce; false: none was measured. */
static bool stage_times(const struct size_times *collectives, const char *kind, uint32_t ranks,
                        const struct pen_partition *partition, struct pen_graph *const *graph,
                        struct pen_reals *times) {
  *times = (struct pen_reals){.count = partition->stage_count,
                              .value = pen_new(partition->stage_count, sizeof *times->value)};
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    times->value[s] = time_of(collectives, "kind", kind, ranks, gradient_bytes(graph[s])).time;
    if (times->value[s] < 0) return false;
  }
  return true;
}

/* Of the bytes that a member sends to another one: those of the largest stage. */
static double byte_time(const struct pen_reals *times, uint32_t ranks,
                        struct pen_graph *const *graph) {
  double most = 0, time = 0;
  for (size_t s = 0; s < times->count; s++) {
    const double bytes = gradient_bytes(graph[s]) * sent_part(ranks);
    if (bytes > most) most = bytes, time = times->value[s] / bytes;
  }
  return time;
}

/* If all replicas shard together, a stage has the times measured for it. Smaller groups also
 * exchange parts of stages with each other: then bytes have a time. */
static const struct pen_topology *with_collectives(const struct size_times *collectives,
                                                   const struct pen_partition *partition,
                                                   struct pen_graph *const *graph) {
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  struct pen_reals reduce, gather;
  const uint32_t replicas = partition->replica_count, shards = partition->shard_ranks;
  *topology = *graph[0]->topology;
  if (!stage_times(collectives, "reduce_scatter", replicas, partition, graph, &reduce) ||
      !stage_times(collectives, "all_gather", replicas, partition, graph, &gather))
    return NULL;
  if (shards == replicas) {
    topology->costs_reduce = reduce;
    topology->costs_gather = gather;
    return topology;
  }
  topology->costs_reduce = topology->costs_gather = (struct pen_reals){.count = 0};
  topology->has_costs_byte = true;
  topology->costs_byte =
      fmax(byte_time(&reduce, replicas, graph), byte_time(&gather, replicas, graph));
  return topology;
}

void pen_measured_links_read(struct pen_measured *measured, const json_t *root,
                             const struct pen_partition *partition,
                             struct pen_graph *const *graph) {
  const struct size_times messages = {measured->path, "messages",
                                      json_object_get(root, "messages")},
                          collectives = {measured->path, "collectives",
                                         json_object_get(root, "collectives")};
  for (uint32_t s = 0; s < partition->stage_count; s++)
    add_messages(&messages, partition, graph[s], &measured->cost[s]);
  if (partition->replica_count > 1)
    measured->collectives = with_collectives(&collectives, partition, graph);
}
