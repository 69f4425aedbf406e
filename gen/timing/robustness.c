/* robustness.c: how the makespan of an order spreads when its costs are not exact.
 *
 * The order is kept and its costs vary: those of each action, or of each rank as a whole, are
 * multiplied by exp(s z - s*s/2), where z is standard normal and s is the noise. The mean of that
 * factor is 1. The time of messages and collectives does not vary.
 *
 * The numbers are counter-based: each is a function of the seed, the number of the draw and the
 * action (or rank), by the mixing function of SplitMix64 (Steele, Lea, Flood 2014, "Fast splittable
 * pseudorandom number generators") and the transform of Box and Muller. So two orders of the same
 * actions are compared under the same costs. */
#include "gen/timing/robustness.h"

#include <math.h>
#include <stdlib.h>

#include "gen/base/arena.h"
#include "gen/model/graph.h"

enum { DRAWS = 1000 };
static const double noises[PEN_SPREAD_NOISES] = {0.05, 0.1, 0.2};

/* ---- random numbers ---- */

#define INCREMENT 0x9E3779B97F4A7C15u /* of SplitMix64: 2^64 divided by the golden ratio */
#define TWO_PI 6.283185307179586

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* Number `index` of a stream, above 0 and at most 1. */
static double uniform_at(uint64_t stream, uint64_t index) {
  return (double)((mix(stream + index * INCREMENT) >> 11) + 1) * 0x1p-53;
}

static double normal_at(uint64_t stream, uint64_t index) {
  return sqrt(-2 * log(uniform_at(stream, 2 * index))) *
         cos(TWO_PI * uniform_at(stream, 2 * index + 1));
}

void pen_noise_draw(const struct pen_noise *noise, const struct pen_partition *partition,
                    uint64_t draw, double *z) {
  uint32_t microbatches = partition->microbatch_count,
           rows = PEN_PROGRAM_B * partition->stage_count;
  uint64_t stream = mix(mix(noise->seed + INCREMENT * (1 + (uint64_t)noise->kind)) + draw);
  for (uint32_t row = 0; row < rows; row++)
    for (uint32_t m = 0; m < microbatches; m++, z++)
      if (noise->kind == PEN_NOISE_ACTION)
        *z = normal_at(stream, (uint64_t)row * microbatches + m);
      else
        *z = m > 0 ? z[-1] : normal_at(stream, partition->rank_of[row % partition->stage_count]);
  *z = 0;
}

double pen_noise_factor(double noise, double z) { return exp(noise * z - noise * noise / 2); }

/* ---- quantiles ---- */

static int compare_values(const void *one, const void *other) {
  double a = *(const double *)one, b = *(const double *)other;
  return (a > b) - (a < b);
}

void pen_sort_values(double *value, size_t count) {
  qsort(value, count, sizeof *value, compare_values);
}

/* The least index with at least p of the values up to it. */
size_t pen_quantile_index(double p, size_t count) {
  size_t rank = (size_t)ceil(p * (double)count - 1e-9);
  return rank > 0 ? rank - 1 : 0;
}

/* ---- spreads ---- */

/* The spreads of one kind of noise. All its sizes use the same draws. */
static void find_spreads(struct pen_retiming *retiming, const struct pen_partition *partition,
                         const struct pen_noise *noise, struct pen_spread *spread) {
  double *z = pen_new(retiming->factor_count, sizeof *z),
         *factor = pen_new(retiming->factor_count, sizeof *factor);
  double(*makespan)[DRAWS] = pen_new(PEN_SPREAD_NOISES, sizeof *makespan);
  for (uint32_t draw = 0; draw < DRAWS; draw++) {
    pen_noise_draw(noise, partition, draw, z);
    for (int size = 0; size < PEN_SPREAD_NOISES; size++) {
      for (uint32_t i = 0; i + 1 < retiming->factor_count; i++)
        factor[i] = pen_noise_factor(noises[size], z[i]);
      factor[retiming->factor_count - 1] = 1;
      makespan[size][draw] = pen_retime(retiming, factor);
    }
  }
  for (int size = 0; size < PEN_SPREAD_NOISES; size++) {
    pen_sort_values(makespan[size], DRAWS);
    spread[size].noise = noises[size];
    spread[size].p50 = makespan[size][pen_quantile_index(0.5, DRAWS)];
    spread[size].p99 = makespan[size][pen_quantile_index(0.99, DRAWS)];
  }
  pen_free(z);
  pen_free(factor);
  pen_free(makespan);
}

void pen_spreads_of(struct pen_retiming *retiming, const struct pen_partition *partition,
                    uint64_t seed, struct pen_spread spread[PEN_SPREADS]) {
  for (int kind = 0; kind < PEN_NOISE_KINDS; kind++) {
    const struct pen_noise noise = {seed, (enum pen_noise_kind)kind};
    struct pen_spread *own = spread + kind * PEN_SPREAD_NOISES;
    find_spreads(retiming, partition, &noise, own);
    for (int size = 0; size < PEN_SPREAD_NOISES; size++) own[size].kind = noise.kind;
  }
}
