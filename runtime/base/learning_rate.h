/* learning_rate.h: the learning rate of a step (docs/contracts.md section 9). */
#ifndef PEN_LEARNING_RATE_H
#define PEN_LEARNING_RATE_H

#include <stdint.h>

#include "runtime/plan/plan.h"

/* The learning rate of optimizer step `step`, which counts from 1. */
double pen_learning_rate(const struct pen_optimizer *optimizer, uint64_t step);

/* From now on it is this one for every step, or, not a number, that of the optimizer again. */
void pen_learning_rate_set(double learning_rate);

#endif
