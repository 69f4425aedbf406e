/* equal_time.h: which times count as equal. */
#ifndef PEN_EQUAL_TIME_H
#define PEN_EQUAL_TIME_H

#include <math.h>

enum { PEN_EQUAL_BITS = 30 };

/* A time cut to about nine digits: sums of the same costs in another order are equal. Does not
 * decrease with the time. */
static inline double pen_equal_time(double time) {
  int exponent;
  const double mantissa = frexp(time * (1 + 1e-12), &exponent);
  return ldexp(floor(ldexp(mantissa, PEN_EQUAL_BITS)), exponent - PEN_EQUAL_BITS);
}

/* The same of a lower bound: not above that of a time which the bound exceeds by rounding only. */
static inline double pen_equal_bound(double bound) { return pen_equal_time(bound * (1 - 2e-12)); }

#endif
