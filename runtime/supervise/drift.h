/* drift.h: whether a quantity that should stay the same has risen, by a cumulative sum (Page 1954).
 *
 * A sample is judged relative to what is expected: 1. What it is above 1 + `allowance` is added to
 * a sum, what it is below is subtracted, down to 0. The quantity is high from when the sum exceeds
 * a limit until it is 0 again. A single sample counts up to a bound, so that only several make the
 * quantity high, and the limit rises with the variance of earlier samples. */
#ifndef PEN_DRIFT_H
#define PEN_DRIFT_H

#include <stdbool.h>
#include <stdint.h>

/* Of all samples at first, later of about the last 32. */
struct pen_average {
  uint32_t count;
  double value;
};
void pen_average_add(struct pen_average *average, double value);

/* The last samples are suspect: nothing is learned from them yet. */
enum { PEN_DRIFT_SUSPECT = 5, PEN_DRIFT_LEAST = 4 };

struct pen_drift {
  /* Of the samples before the suspect ones, except while the quantity was high: as measured, and
   * the squares of their deviations in allowances. */
  struct pen_average expected, variance;
  uint32_t seen;
  bool judged[PEN_DRIFT_SUSPECT]; /* only then the square is one */
  double measured[PEN_DRIFT_SUSPECT], square[PEN_DRIFT_SUSPECT];
  double sum; /* in allowances */
  bool high;
  /* Since the sum was 0 last: the first step, and the average of the samples. */
  uint64_t since;
  struct pen_average rise;
};

/* Adds the sample of a step: as measured, and relative to what is expected, which is ignored while
 * `expected` has fewer than PEN_DRIFT_LEAST. Returns whether it made the quantity high. */
bool pen_drift_add(struct pen_drift *drift, double allowance, uint64_t step, double measured,
                   double value);

#endif
