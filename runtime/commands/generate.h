/* generate.h: the command generate: goes on from a prompt, token by token, so that a person sees
 * what a model has learnt.
 *
 * A step reads a window of one sample's last tokens, and gives it one more: drawn from
 * softmax(logits / temperature) of the row of its last token, over the top_k likeliest tokens. At
 * temperature 0 the likeliest is taken. It runs a profile of its own, the shortest that holds the
 * sample so far, or, when none does, the longest, that of the model's sequence
 * (gen/lower/generate_profiles.c). Samples follow one another. What is drawn depends on seed,
 * sample and place alone. */
#ifndef PEN_GENERATE_H
#define PEN_GENERATE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/rank/run.h"

/* The parent: reads the prompt; makes room for the samples. Fails (64) on a prompt that is none. */
void pen_generate_open(const struct pen_plan *plan, const struct pen_options *options);

/* ---- draw.c ---- */

/* Draws a token by a number from [0, 1). logits [count], f32; they are left as they are. `weights`
 * is [count], for the work. top_k 0: all. */
size_t pen_sample(const float *logits, size_t count, double temperature, uint64_t top_k,
                  double uniform, double *weights);

/* A number from [0, 1): SplitMix64 (Steele et al. 2014) of a key and two counters. */
double pen_uniform(uint64_t key, uint64_t first, uint64_t second);

#endif
