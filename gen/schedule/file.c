/* file.c: an order from outside. */
#include "gen/schedule/torch_csv.h"
#include "gen/schedule/schedule.h"
#include "gen/topology/topology.h"

/* The order is that of pipeline.schedule_file, which was read when the topology was settled. */
void pen_schedule_file(const struct pen_composer *composer) {
  const struct pen_topology *t = composer->topology;
  *composer->order = *pen_csv_read(t->schedule_path, t->schedule_text, t->schedule_bytes,
                                   composer->partition, t->pipeline_placement);
}
