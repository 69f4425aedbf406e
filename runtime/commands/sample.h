/* sample.h: samples a token from logits.
 *
 * The order and the meaning of each step are those of transformers' generate(): repetition penalty,
 * temperature, top_k, top_p, min_p, draw. */
#ifndef PEN_SAMPLE_H
#define PEN_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

struct pen_sampling {
  double temperature; /* 0: the most likely token, whatever the others say */
  uint64_t top_k;     /* 0: all */
  double top_p;       /* (0, 1]; 1: all */
  double min_p;       /* [0, 1); 0: all */
};

/* Returns the token that a number from [0, 1) selects from softmax(logits / temperature) over the
 * tokens that are left: of the top_k most likely (and those as likely as the last of these), the
 * fewest whose probabilities add up to top_p or more, and of them those at least min_p times as
 * likely as the most likely. Of equal logits the lower index is the more likely one. logits [count]
 * are finite, and not changed; weights and order [count] are scratch. */
size_t pen_sample(const float *logits, size_t count, const struct pen_sampling *sampling,
                  double uniform, double *weights, uint32_t *order);

/* Copies logits [count]; each that belongs to one of the tokens is divided by the penalty if it is
 * positive, else multiplied by it, once. The results of finite logits are finite. */
void pen_penalise_repetition(float *to, const float *logits, size_t count, const uint32_t *tokens,
                             uint64_t token_count, double penalty);

/* A number from [0, 1): SplitMix64 (Steele et al. 2014) of a key and two counters. */
double pen_uniform(uint64_t key, uint64_t first, uint64_t second);

#endif
