/* step_functions.h: the functions of the column `value` of steps.def on vectors. Each is defined
 * for all f32, NaN included, within 3 units in the last place, but for results that are subnormal.
 */
#ifndef PEN_STEP_FUNCTIONS_H
#define PEN_STEP_FUNCTIONS_H

#include "kernels/cpu/vector/functions.h"

#define number(x) splat((float)(x))
#define step_sigmoid sigmoid

/* e^x by e^(x - 8) e^8 where e^x may exceed what exponential() allows. */
inline_always vf step_exp(vf x) {
  const vi large = x > 80.0f;
  x = choose(x > 96.0f, splat(96.0f), x);
  return exponential(choose(large, x - 8.0f, x)) * choose(large, splat(2980.95799f), splat(1.0f));
}

/* ln x, x = 2^n m with sqrt(1/2) <= m < sqrt(2): n ln2 + 2 atanh(s), s = (m - 1)/(m + 1), by the
 * series of atanh up to s^11. */
inline_always vf step_log(vf x) {
  const vi subnormal = x < 0x1p-126f;
  const vf scaled = choose(subnormal, x * 0x1p23f, x);
  const vi exponent = ((vi)scaled - 0x3f3504f3) >> 23;
  const vf n = __builtin_convertvector(exponent, vf) - choose(subnormal, splat(23.0f), splat(0.0f));
  const vf m = (vf)((vu)scaled - ((vu)exponent << 23));
  const vf s = (m - 1.0f) / (m + 1.0f), z = s * s;
  vf series = madd(z, splat(0.0909090909f), splat(0.111111111f));
  series = madd(z, series, splat(0.142857143f));
  series = madd(z, series, splat(0.2f));
  series = madd(z, series, splat(0.333333333f));
  const vf twice = s + s, rest = madd(twice * z, series, n * -2.12194440e-4f);
  const vf y = madd(n, splat(0.693359375f), twice + rest);
  const vf outside = choose(x == 0.0f, splat(-__builtin_inff()), splat(__builtin_nanf("")));
  return choose(x > 3.4e38f, x, choose(x > 0.0f, y, outside));
}

/* e^x - 1 for x <= 0, exact where the result is small, too. */
inline_always vf exponential_less_one(vf x) {
  vf power;
  const vf part = exponential_parts(choose(x < -20.0f, splat(-20.0f), x), splat(-0.0f), &power);
  return madd(part, power, power - 1.0f);
}

/* With e = e^(-2|x|) - 1: tanh |x| = -e/(2 + e). */
inline_always vf step_tanh(vf x) {
  const vf e = exponential_less_one(absolute(x) * -2.0f), y = e / (2.0f + e);
  return choose(x < 0.0f, y, -y);
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + t), t = e^-|x|; where u = 1 + t is rounded, ln(1 + t) is about
 * t ln(u)/(u - 1) (Goldberg 1991, theorem 4). */
inline_always vf step_softplus(vf x) {
  const vf t = exponential(-absolute(x)), u = t + 1.0f;
  const vf logarithm = choose(u == 1.0f, t, step_log(u) * t / (u - 1.0f));
  return choose(x > 0.0f, x, splat(0.0f)) + logarithm;
}

/* erf x = 1 - 2 Phi(-x sqrt2); near 0 by its series up to x^13. */
inline_always vf step_erf(vf x) {
  const vf a = absolute(x), z = x * x;
  vf distribution, density;
  normal_distribution(a * -1.41421356f, &distribution, &density);
  vf series = madd(z, splat(1.20553e-4f), splat(-8.548327e-4f));
  series = madd(z, series, splat(5.22397762e-3f));
  series = madd(z, series, splat(-2.68661706e-2f));
  series = madd(z, series, splat(0.112837917f));
  series = madd(z, series, splat(-0.376126389f));
  series = madd(z, series, splat(1.12837917f));
  const vf far = madd(distribution, splat(-2.0f), splat(1.0f));
  return choose(a < 0.5f, x * series, choose(x < 0.0f, -far, far));
}

#endif
