/* sample.h: samples a token from logits. */
#ifndef PEN_SAMPLE_H
#define PEN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

/* Returns the token that a number from [0, 1) selects from softmax(logits / temperature) over the
 * top_k most likely tokens (0: all); at temperature 0 the most likely. logits [count] are finite,
 * and not changed; weights [count] is scratch. */
size_t pen_sample(const float *logits, size_t count, double temperature, uint64_t top_k,
                  double uniform, double *weights);

/* A number from [0, 1): SplitMix64 (Steele et al. 2014) of a key and two counters. */
double pen_uniform(uint64_t key, uint64_t first, uint64_t second);

#endif
