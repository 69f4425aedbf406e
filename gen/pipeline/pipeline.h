/* pipeline.h: the passes of the generator, in order.
 *
 *   pass        in                          out                                        folder
 *   topology    file and overrides          struct pen_topology: all settings          topology/
 *   partition   topology, model family      blocks of stages, ranks of stages          partition/
 *   model       topology, partition         programs F, I, W, B of each stage          model/
 *   costs       programs or measured file   costs of each program                      timing/
 *   compose     topology, partition         compute order of every rank                schedule/
 *   simulate    order, costs                start and end of each action               timing/
 *   lower       order, timing               actions with sends, receives, collectives  lower/
 *   layout      actions, programs           offsets, slots, credits: struct pen_plan   layout/
 *   search      all of the above            the best order that fits the memory limit  search/
 *   joint       topology                    cut, recomputation and order together      joint/
 *   verify      plan                        nothing, or the first problem              verify/
 *   emit        plan, timing                C tables                                   emit/
 *   views       plan, timing                charts, JSON, text                         views/
 *
 * No pass changes the result of an earlier one. gen/layout/draft.c runs those from partition to
 * layout, pipeline.c for what the topology leaves open, each trial again; generate.c runs all,
 * those from partition to verify again for each fallback of the topology; what is emitted holds all
 * plans.
 */
#ifndef PEN_PIPELINE_H
#define PEN_PIPELINE_H

#include "gen/pipeline/options.h"
#include "gen/pipeline/output.h"
#include "gen/topology/topology.h"

/* The plan of a topology with the choices that it leaves open; not verified, without a digest.
 * `measured`: the file of options->costs; NULL: none. */
struct pen_result pen_pipeline_choose(const struct pen_topology *topology,
                                      const struct pen_generator_options *options,
                                      const struct pen_measured *measured);

#endif
