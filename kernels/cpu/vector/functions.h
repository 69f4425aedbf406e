/* functions.h: exponential and normal distribution on vectors, by polynomial approximation.
 *
 * The coefficients come from a weighted least-squares fit on Chebyshev points, reweighted until the
 * error is level (Lawson's iteration), in 40 digits. NaN inputs give NaN. */
#ifndef PEN_FUNCTIONS_H
#define PEN_FUNCTIONS_H

#include "kernels/cpu/vector/vector.h"

/* e^(x + rest) = (1 + part) power, for x from -87.33 to 88 and |rest| << 1. x + rest = n ln2 + r
 * with |r| <= ln2/2; part = e^r - 1 = r + r^2 q(r), q of degree 4 (relative error 3e-9); power =
 * 2^n is n in the exponent. Returns part. */
inline_always vf exponential_parts(vf x, vf rest, vf *power) {
  const float shifter =
      12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, in the low bits */
  vf shifted = madd(x, splat(1.44269504f), splat(shifter));
  vf n = shifted - shifter;
  vf r = madd(n, splat(-0.693359375f),
              x); /* ln2 in two parts; the first has 9 bits, so that n times it is exact */
  r = madd(n, splat(2.12194440e-4f), r) + rest;
  vf r2 = r * r; /* q by Estrin's scheme: fewer dependent steps than Horner's */
  vf low = madd(r, splat(0.166665206f), splat(0.499999935f)),
     high = madd(r, splat(0.00836871678f), splat(0.0416683869f));
  vf q = madd(r2, madd(r2, splat(0.00138146756f), high), low);
  *power = (vf)(((vu)shifted << 23) + 0x3f800000u);
  return madd(r2, q, r);
}

/* e^(x + rest) for x <= 88 and |rest| << 1, within 2 units in the last place; 0 for x below -87.33,
 * where the result is subnormal. */
inline_always vf exponential_of_sum(vf x, vf rest) {
  vf power, part = exponential_parts(x, rest, &power);
  return choose(x < -87.33f, splat(0.0f), (part + 1.0f) * power);
}

inline_always vf exponential(vf x) { return exponential_of_sum(x, splat(-0.0f)); }

enum { POWERS = 4 }; /* at once, to hide latency */

/* x[i] = 2^x[i] for x up to 127, within 2 units in the last place; 2^-125 for x below -125;
 * undefined above 127. x = n + f with |f| <= 1/2; 2^f = 1 + f q(f), q of degree 4 (relative error
 * 9e-8); n is added to the exponent. It costs less than half of exponential(). */
inline_always void powers_of_two(vf *x, size_t count) {
  const float shifter =
      12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer, in the low bits */
  vf shifted[POWERS], y[POWERS];
#define EACH _Pragma("GCC unroll 4") for (size_t i = 0; i < count; i++)
  EACH x[i] = maximum(splat(-125.0f), x[i]);
  EACH shifted[i] = x[i] + shifter;
  EACH x[i] = x[i] - (shifted[i] - shifter);
  EACH y[i] = madd(x[i], splat(0.00132647239f), splat(0.00967151287f));
  EACH y[i] = madd(x[i], y[i], splat(0.0555073375f));
  EACH y[i] = madd(x[i], y[i], splat(0.240222421f));
  EACH y[i] = madd(x[i], y[i], splat(0.693146978f));
  EACH y[i] = madd(x[i], y[i], splat(1.0f));
  EACH x[i] = (vf)((vu)y[i] + ((vu)shifted[i] << 23));
#undef EACH
}

/* 2^x for x up to 127 with a relative error of 3e-6, for results that are rounded to bf16;
 * undefined above 127; 0 for x below -149, or below -126 without an instruction for subnormal
 * results. x = n + f with n <= x < n + 1; 2^f = 1 + f q(f), q of degree 3. */
inline_always vf power_of_two_roughly(vf x) {
#if PEN_VECTOR_BYTES == 64 && defined __AVX512DQ__
  const vf f = (vf)_mm512_reduce_ps((__m512)x, _MM_FROUND_TO_NEG_INF);
#else
  vf n = (x + 12582912.0f) - 12582912.0f;
  n = choose(n > x, n - 1.0f, n);
  const vf f = x - n;
#endif
  vf y = madd(f, splat(0.0134266843f), splat(0.0522424743f));
  y = madd(f, y, splat(0.241280205f));
  y = madd(f, y, splat(0.693044845f));
  y = madd(f, y, splat(1.0f));
#if PEN_VECTOR_BYTES == 64 && defined __AVX512DQ__
  return (vf)_mm512_scalef_ps((__m512)y, (__m512)x);
#else
  return choose(x >= -126.0f, (vf)((vu)y + ((vu)(x - f + 12582912.0f) << 23)), splat(0.0f));
#endif
}

/* 1/(1 + e^-x), computed from e^-|x|, which cannot overflow. */
inline_always vf sigmoid(vf x) {
  vf e = exponential(-absolute(x));
  vf upper = 1.0f / (1.0f + e);
  return choose(x < 0.0f, e * upper, upper);
}

/* The distribution Phi(x) and density phi(x) of the standard normal, relative error below 5e-7 also
 * in the tail. With a = |x|, t = 1/(1 + 0.35 a), u = 1 - t: Phi(-a) = e^(-a^2/2) t p(u), p of
 * degree 8 fitted to a relative error of 3.5e-8 on 0 <= a <= 13.4 (similar to Abramowitz and
 * Stegun 7.1.26); Phi(a) = 1 - Phi(-a). Phi(x) = (1 + erf(x/sqrt2))/2. a^2 has two parts, the exact
 * square of a's upper 12 bits and the rest: rounded, a^2/2 would have an error of 1e-6 at a = 5.
 * Beyond a = 14 both results are constant. */
inline_always void normal_distribution(vf x, vf *distribution, vf *density) {
  vf a = absolute(x);
  a = choose(a > 14.0f, splat(14.0f), a);
  vf upper = (vf)((vi)a & ~0xfff);
  vf e = exponential_of_sum(upper * upper * -0.5f, (a - upper) * (a + upper) * -0.5f);
  vf t = 1.0f / madd(a, splat(0.35f), splat(1.0f));
  vf u = a * 0.35f * t;
  vf p = madd(u, splat(-0.0288704236f), splat(0.0882320321f));
  p = madd(p, u, splat(-0.0626069392f));
  p = madd(p, u, splat(-0.0171913978f));
  p = madd(p, u, splat(-0.0636890048f));
  p = madd(p, u, splat(0.102520062f));
  p = madd(p, u, splat(0.261060895f));
  p = madd(p, u, splat(-0.639832929f));
  p = madd(p, u, splat(0.5f));
  vf tail = e * (t * p);
  *distribution = choose(x > 0.0f, 1.0f - tail, tail);
  *density = e * 0.398942280f;
}

#endif
