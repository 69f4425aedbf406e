/* chart.h: what several charts share. */
#ifndef PEN_CHART_H
#define PEN_CHART_H

#include <stdbool.h>
#include <stdint.h>

#include "gen/partition/partition.h"

/* The index of each stage among the stages of its rank [stage]. */
uint32_t *pen_local_stages(const struct pen_partition *partition);

/* A round step of a scale: 1, 2 or 5 times a power of ten, so that `span` has at most `steps` of
 * them. */
double pen_scale_step(double span, int steps);

/* The unit in which a time of the costs' unit ("in Gflop") has few digits before the point. */
struct pen_time_unit {
  double size; /* in the costs' unit */
  const char *name;
};
struct pen_time_unit pen_time_unit_of(double longest, const char *unit);

/* How far a time is above its lower bound, as a share of the bound. */
double pen_gap(double time, double bound);

/* How charts show the actions of a kind: in characters, with `fill` for the columns after the
 * letter where there is no colour, else with one of a 256-colour terminal; and in SVG. The colours
 * differ in lightness, too. Dark ones have a light text. */
struct pen_chart_kind {
  char letter, fill;
  uint8_t terminal;
  bool dark;
  const char *svg, *meaning;
};
extern const struct pen_chart_kind pen_chart_kinds[PEN_ACTION_KINDS];

/* "1 stage", "2 stages", "8 microbatches". */
const char *pen_counted(uint64_t count, const char *noun);

#endif
