/* measured_links.c: the costs of messages and collectives by their size (see measured_links.h).
 *
 * What lies between two measured sizes is in proportion; beyond the largest it rises with the
 * bytes.
 *
 * A message of transport shm is copied by its sender, after the action that makes it. The time for
 * the fewest bytes that were measured is the latency, which delays the arrival; what more bytes
 * take longer is the copy, which belongs to the action. With other transports all of it is latency.
 *
 * An exchange of tensor ranks (collectives of the kind "exchange") has the bytes of the part that a
 * member puts into a slot of each of the others, and holds for as many ranks alone.
 *
 * Another collective of other ranks than those measured takes as much longer as each of its members
 * sends more: of the bytes of all, (ranks - 1) / ranks. */
#include "gen/timing/measured_links.h"

#include <math.h>
#include <string.h>

#include <jansson.h>

#include "gen/base/arena.h"
#include "gen/timing/costs_json.h"
#include "gen/model/splits.h"

/* One row: what was sent by which transport or collective. */
struct link_row {
  const char *name;
  double bytes, ms;
  double ranks; /* of a collective; 0: a message */
};

struct link_rows {
  struct link_row *row;
  size_t count;
};

struct pen_measured_links {
  struct link_rows messages, collectives;
};

/* ---- the file ---- */

static struct link_rows read_rows(const char *path, const char *list, const char *name_key,
                                  bool has_ranks, const json_t *values) {
  struct link_rows rows = {.count = json_array_size(values)};
  rows.row = pen_new(rows.count + 1, sizeof *rows.row);
  for (size_t i = 0; i < rows.count; i++) {
    const json_t *object = json_array_get(values, i);
    const char *name = json_string_value(json_object_get(object, name_key));
    const char *place = pen_text("%s[%zu]", list, i);
    if (!name) pen_costs_json_fail(path, pen_text("%s.%s", place, name_key), "must be a string");
    rows.row[i] = (struct link_row){
        pen_text("%s", name),
        (double)pen_costs_json_count(path, pen_text("%s.bytes", place),
                                     json_object_get(object, "bytes"), 0, PEN_COSTS_BYTES_MOST),
        pen_costs_json_time(path, pen_text("%s.ms", place), json_object_get(object, "ms")),
        has_ranks
            ? pen_costs_json_setting(path, pen_text("%s.ranks", place),
                                     json_object_get(object, "ranks"), "data_parallel.replicas")
            : 0};
  }
  return rows;
}

struct pen_measured_links *pen_measured_links_read(const char *path, const json_t *messages,
                                                   const json_t *collectives) {
  struct pen_measured_links *links = pen_new(1, sizeof *links);
  links->messages = read_rows(path, "messages", "transport", false, messages);
  links->collectives = read_rows(path, "collectives", "kind", true, collectives);
  return links;
}

/* ---- times by size ---- */

/* Each member's part of what a collective of so many ranks sends. */
static double sent_part(double ranks) { return ranks > 1 ? (ranks - 1) / ranks : 0; }

/* A row in milliseconds, for so many ranks (0: a message). */
static double row_ms(const struct link_row *row, uint32_t ranks) {
  const double measured = ranks ? sent_part(row->ranks) : 0;
  return measured > 0 ? row->ms * sent_part(ranks) / measured : row->ms;
}

/* The time for the fewest bytes that were measured, and for the bytes asked; both below 0: none. */
struct size_time {
  double least, time;
};

static const char exchange_kind[] = "exchange";

static bool is_of(const struct link_row *row, const char *name, uint32_t ranks) {
  return strcmp(row->name, name) == 0 && (name != exchange_kind || row->ranks == ranks);
}

/* Of the rows of that name; of exchanges, those of as many ranks. */
static struct size_time time_of(const struct link_rows *rows, const char *name, uint32_t ranks,
                                double bytes) {
  double least = INFINITY, below = -1, above = INFINITY;
  double least_ms = 0, below_ms = 0, above_ms = 0;
  for (size_t i = 0; i < rows->count; i++) {
    const double size = rows->row[i].bytes, ms = row_ms(&rows->row[i], ranks);
    if (!is_of(&rows->row[i], name, ranks)) continue;
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

static void add_stage(const struct link_rows *messages, const struct pen_partition *partition,
                      const struct pen_graph *graph, struct pen_stage_cost *cost) {
  const uint32_t s = graph->stage, *rank = partition->rank_of;
  const struct pen_transport_row *transport = pen_transport_row(graph->topology->cluster_transport),
                                 *within = pen_transport_row(transport->within),
                                 *between = pen_transport_row(transport->between);
  const double out = value_bytes(graph, graph->output),
               back = value_bytes(graph, graph->input_gradient);
  const struct size_time forward = time_of(messages, within->text, 0, out),
                         backward = time_of(messages, within->text, 0, back),
                         far = time_of(messages, between->text, 0, fmax(out, back));
  const bool copies = within->sender_copies;
  cost->send = fmax(0, copies ? forward.least : fmax(forward.time, backward.time));
  cost->send_host = far.time < 0 ? cost->send : far.time;
  if (copies && s + 1 < partition->stage_count && rank[s] != rank[s + 1])
    cost->forward += fmax(0, forward.time - forward.least);
  if (copies && s > 0 && rank[s] != rank[s - 1])
    cost->backward_input += fmax(0, backward.time - backward.least);
}

void pen_measured_links_add(const struct pen_measured_links *links,
                            const struct pen_partition *partition, struct pen_graph *const *graph,
                            struct pen_stage_cost *cost) {
  for (uint32_t s = 0; s < partition->stage_count; s++)
    add_stage(&links->messages, partition, graph[s], &cost[s]);
}

/* ---- collectives ---- */

/* Bytes of the gradients of a stage. */
static double gradient_bytes(const struct pen_graph *graph) {
  double bytes = 0;
  for (uint32_t w = 0; w < graph->weight_count; w++)
    if (pen_sums_gradient(&graph->weight[w], PEN_DATA) && !pen_is_tied_head(graph, w) &&
        pen_graph_has_weight(graph, w))
      bytes += (double)graph->weight[w].count * sizeof(float);
  return bytes;
}

static const char *const collective_kinds[] = {
    [PEN_MEASURED_REDUCE] = "reduce_scatter", [PEN_MEASURED_GATHER] = "all_gather"};

double pen_measured_collective_ms(const struct pen_measured_links *links,
                                  enum pen_measured_collective kind, uint32_t ranks, double bytes) {
  return time_of(&links->collectives, collective_kinds[kind], ranks, bytes).time;
}

double pen_measured_byte_ms(const struct pen_measured_links *links, uint32_t ranks, double bytes) {
  const double sent = bytes * sent_part(ranks);
  return sent > 0 ? fmax(pen_measured_collective_ms(links, PEN_MEASURED_REDUCE, ranks, bytes),
                         pen_measured_collective_ms(links, PEN_MEASURED_GATHER, ranks, bytes)) /
                        sent
                  : 0;
}

/* A cost for each stage, as in costs.reduce; false: none was measured. */
static bool stage_times(const struct pen_measured_links *links, enum pen_measured_collective kind,
                        uint32_t ranks, const struct pen_partition *partition,
                        struct pen_graph *const *graph, struct pen_reals *times) {
  *times = (struct pen_reals){.count = partition->stage_count,
                              .value = pen_new(partition->stage_count, sizeof *times->value)};
  for (uint32_t s = 0; s < partition->stage_count; s++) {
    times->value[s] = pen_measured_collective_ms(links, kind, ranks, gradient_bytes(graph[s]));
    if (times->value[s] < 0) return false;
  }
  return true;
}

/* Of the largest stage. */
static double most_gradient_bytes(const struct pen_partition *partition,
                                  struct pen_graph *const *graph) {
  double most = 0;
  for (uint32_t s = 0; s < partition->stage_count; s++) most = fmax(most, gradient_bytes(graph[s]));
  return most;
}

double pen_measured_exchange_ms(const struct pen_measured_links *links, uint32_t ranks,
                                double sent) {
  return links ? time_of(&links->collectives, exchange_kind, ranks, sent / (ranks - 1)).time : -1;
}

/* With the exchanges of its tensor ranks, if they were measured. */
static const struct pen_topology *with_exchanges(const struct pen_measured_links *links,
                                                 const struct pen_topology *without) {
  const uint32_t ranks = (uint32_t)without->tensor_parallel_ranks;
  if (ranks == 1 || pen_measured_exchange_ms(links, ranks, 0) < 0) return without;
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  *topology = *without;
  topology->measured_exchanges = links;
  return topology;
}

/* If all replicas shard together, a stage has the times measured for it. Smaller groups also
 * exchange parts of stages with each other: then bytes have a time. */
const struct pen_topology *pen_measured_links_topology(const struct pen_measured_links *links,
                                                       const struct pen_topology *given,
                                                       const struct pen_partition *partition,
                                                       struct pen_graph *const *graph) {
  const struct pen_topology *without = with_exchanges(links, given);
  struct pen_reals reduce, gather;
  const uint32_t replicas = pen_group_size(partition, PEN_DATA);
  if (replicas <= 1) return without;
  struct pen_topology *topology = pen_new(1, sizeof *topology);
  *topology = *without;
  if (!stage_times(links, PEN_MEASURED_REDUCE, replicas, partition, graph, &reduce) ||
      !stage_times(links, PEN_MEASURED_GATHER, replicas, partition, graph, &gather))
    return without;
  if (pen_group_size(partition, PEN_SAME_SHARD) == 1) {
    topology->costs_reduce = reduce;
    topology->costs_gather = gather;
    return topology;
  }
  topology->costs_reduce = topology->costs_gather = (struct pen_reals){.count = 0};
  topology->has_costs_byte = true;
  topology->costs_byte =
      pen_measured_byte_ms(links, replicas, most_gradient_bytes(partition, graph));
  return topology;
}
