/* drift.c: a cumulative sum of deviations (see drift.h). */
#include "runtime/supervise/drift.h"

#include <math.h>

enum { MEMORY = 32 }; /* samples that an average goes back */

/* In allowances: the least limit, and the bounds of a sample's deviation. */
static const double least_limit = 3, most_deviation = 3.5;

/* What the variance is taken for as long as nothing else is known. */
static const struct pen_average first_variance = {.count = 4, .value = 1.5};

/* So that samples that vary normally make a quantity high once in exp(2 * 6) samples. */
static const double limit_per_variance = 6;

void pen_average_add(struct pen_average *average, double value) {
  average->count += average->count < MEMORY;
  average->value += (value - average->value) / average->count;
}

/* Higher at first: few samples make the expectation and the variance uncertain. */
static double limit_of(const struct pen_drift *drift) {
  const double few = 1 + 4.0 / drift->expected.count;
  return few * fmax(least_limit, limit_per_variance * drift->variance.value);
}

/* Replaces the oldest of the suspect samples, from which it learns. */
static void keep_sample(struct pen_drift *drift, bool judged, double measured, double deviation) {
  const uint32_t at = drift->seen % PEN_DRIFT_SUSPECT;
  if (drift->seen++ >= PEN_DRIFT_SUSPECT) {
    pen_average_add(&drift->expected, drift->measured[at]);
    if (drift->judged[at]) {
      pen_average_add(&drift->variance, drift->square[at]);
    }
  }
  drift->judged[at] = judged;
  drift->measured[at] = measured;
  drift->square[at] = deviation * deviation;
}

static bool judge_sample(struct pen_drift *drift, uint64_t step, double value, double deviation) {
  const double limit = limit_of(drift);
  const bool was_high = drift->high;
  if (!(drift->sum > 0)) {
    drift->since = step;
    drift->rise = (struct pen_average){0};
  }
  pen_average_add(&drift->rise, value);
  drift->sum = fmax(0, fmin(drift->sum + deviation - 1, 2 * limit));
  drift->high = drift->sum > (was_high ? 0 : limit);
  return drift->high && !was_high;
}

bool pen_drift_add(struct pen_drift *drift, double allowance, uint64_t step, double measured,
                   double value) {
  const bool judged = drift->expected.count >= PEN_DRIFT_LEAST;
  if (drift->seen == 0) {
    drift->variance = first_variance;
  }
  const double deviation =
      judged ? fmax(-most_deviation, fmin((value - 1) / allowance, most_deviation)) : 0;
  if (!drift->high) {
    keep_sample(drift, judged, measured, deviation);
  }
  return judged && judge_sample(drift, step, value, deviation);
}
