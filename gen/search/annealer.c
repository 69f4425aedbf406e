/* annealer.c: the rule of simulated annealing (see annealer.h). */
#include "gen/search/annealer.h"

#include <math.h>

double pen_annealer_most(struct pen_annealer *annealer, double left) {
  const double chance = pen_search_uniform(&annealer->seed) + 1e-300;
  return annealer->energy - annealer->temperature * left * left * log(chance);
}
