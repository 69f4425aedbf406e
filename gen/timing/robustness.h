/* robustness.h: how the makespan of an order spreads when its costs are not exact. */
#ifndef PEN_ROBUSTNESS_H
#define PEN_ROBUSTNESS_H

#include <stddef.h>
#include <stdint.h>

#include "gen/timing/retiming.h"

/* Which costs vary together: each action has a factor of its own, or each rank has one. */
enum pen_noise_kind { PEN_NOISE_ACTION, PEN_NOISE_RANK, PEN_NOISE_KINDS };

/* The median and the 99th percentile of the makespan under noise of one kind and size. */
struct pen_spread {
  const char *order;    /* "chosen", or the name of a schedule */
  const char *settings; /* of that schedule, as in "warmup 2"; NULL: none */
  enum pen_noise_kind kind;
  double noise, p50, p99;
};

enum { PEN_SPREAD_NOISES = 3, PEN_SPREADS = PEN_NOISE_KINDS * PEN_SPREAD_NOISES };

/* What is drawn: the same numbers for the same seed and draw, whatever the order. */
struct pen_noise {
  uint64_t seed;
  enum pen_noise_kind kind;
};

/* Sets z[pen_retiming's factor_count], standard normal numbers, of one draw. The number of what is
 * no action is 0. */
void pen_noise_draw(const struct pen_noise *noise, const struct pen_partition *partition,
                    uint64_t draw, double *z);

/* The factor of a cost: its mean is 1 (a log-normal distribution). */
double pen_noise_factor(double noise, double z);

/* Sorts values; the p-quantile is then the one at pen_quantile_index(). */
void pen_sort_values(double *value, size_t count);
size_t pen_quantile_index(double p, size_t count);

/* The spreads of an order, without its name, over 1000 draws for each kind. */
void pen_spreads_of(struct pen_retiming *retiming, const struct pen_partition *partition,
                    uint64_t seed, struct pen_spread spread[PEN_SPREADS]);

#endif
