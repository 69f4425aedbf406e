/* chart.c: local stages, scales, units, counted nouns. */
#include "gen/views/chart.h"

#include <math.h>
#include <string.h>

#include "gen/base/arena.h"

const struct pen_chart_kind pen_chart_kinds[PEN_ACTION_KINDS] = {
    [PEN_F] = {'F', '-', 153, false, "#b5d5f2", "forward"},
    [PEN_B] = {'B', '=', 61, true, "#44508f", "backward"},
    [PEN_I] = {'I', '=', 208, false, "#ec9532", "backward for the input"},
    [PEN_W] = {'W', '~', 29, true, "#1b7a55", "backward for the weights"},
    [PEN_REDUCE_SCATTER] = {'R', '+', 246, false, "#9a9a9a", "gradients reduced over replicas"},
    [PEN_REDUCE_GROUPS] = {'P', '+', 246, false, "#9a9a9a", "gradients reduced over groups"},
    [PEN_GATHER_GROUPS] = {'Q', '+', 252, false, "#cfcfcf", "gradients gathered from groups"},
    [PEN_ALL_GATHER_GRAD] = {'G', '+', 252, false, "#cfcfcf", "gradients gathered from replicas"},
    [PEN_ALL_GATHER_WEIGHT] = {'V', '+', 252, false, "#cfcfcf", "weights gathered from replicas"},
    [PEN_UNSHARD] = {'U', '+', 252, false, "#cfcfcf", "weights unsharded"},
};

uint32_t *pen_local_stages(const struct pen_partition *partition) {
  uint32_t *local = pen_new(partition->stage_count, sizeof *local),
           *next = pen_new(partition->rank_count, sizeof *next);
  for (uint32_t stage = 0; stage < partition->stage_count; stage++)
    local[stage] = next[partition->rank_of[stage]]++;
  return local;
}

double pen_scale_step(double span, int steps) {
  if (!(span > 0) || steps < 1) return 1;
  double least = span / steps, power = pow(10, floor(log10(least)));
  if (!(power > 0)) return span; /* too small for a power of ten */
  for (int factor = 1; factor <= 5; factor += factor == 1 ? 1 : 3)
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

struct pen_time_unit pen_time_unit_of(double longest, const char *unit) {
  static const struct pen_time_unit flops[] = {
      {1e9, "in Eflop"}, {1e6, "in Pflop"}, {1e3, "in Tflop"}};

  for (size_t i = 0; !strcmp(unit, "in Gflop") && i < sizeof flops / sizeof *flops; i++)
    if (longest >= 10 * flops[i].size) return flops[i];
  return (struct pen_time_unit){1, unit};
}

double pen_gap(double time, double bound) { return bound > 0 ? (time - bound) / bound : 0; }

const char *pen_counted(uint64_t count, const char *noun) {
  const char *ending = count == 1 ? "" : noun[strlen(noun) - 1] == 'h' ? "es" : "s";
  return pen_text("%llu %s%s", (unsigned long long)count, noun, ending);
}
