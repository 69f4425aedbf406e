/* annealer.h: what all searches by simulated annealing share: random numbers, and which next state
 * is accepted. Source: Kirkpatrick, Gelatt, Vecchi 1983, Optimization by simulated annealing. */
#ifndef PEN_ANNEALER_H
#define PEN_ANNEALER_H

#include <stdbool.h>
#include <stdint.h>

struct pen_annealer {
  double energy;      /* of the state */
  double temperature; /* at first, in the unit of the energy */
  uint64_t seed;      /* not 0 */
};

/* The greatest energy with which a next state is accepted, when `left` (1 to 0) of the search's
 * work is left: a state is accepted with probability exp(-increase / temperature), and the
 * temperature falls with the square of `left`, so most of the work is done at low temperatures. The
 * random number is drawn before the state is judged, which makes it a threshold at which judging it
 * may stop early. */
double pen_annealer_most(struct pen_annealer *annealer, double left);

/* xorshift64* (Marsaglia, Vigna): the same numbers on every machine. */
static inline uint64_t pen_search_draw(uint64_t *seed) {
  *seed ^= *seed >> 12;
  *seed ^= *seed << 25;
  *seed ^= *seed >> 27;
  return *seed * 0x2545F4914F6CDD1DULL;
}

/* Uniform from 0 to below 1. */
static inline double pen_search_uniform(uint64_t *seed) {
  return (double)(pen_search_draw(seed) >> 11) * 0x1p-53;
}

/* Uniform from 0 to below `count`. */
static inline uint32_t pen_search_below(uint64_t *seed, uint32_t count) {
  return (uint32_t)((pen_search_draw(seed) >> 32) * count >> 32);
}

#endif
