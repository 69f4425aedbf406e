/* nccl_rounds.c: rounds of disjoint pairs of ranks (see nccl_rounds.h). */
#include "runtime/comm/nccl_rounds.h"

#include <stdbool.h>
#include <stdlib.h>

#include "runtime/base/check.h"

uint32_t pen_nccl_rounds(const struct pen_profile *profile, uint32_t rank_count, uint32_t *round) {
  const uint32_t count = profile->channel_count;
  uint32_t rounds = 0;
  bool *taken = calloc((size_t)count * rank_count + 1, sizeof *taken); /* [round][rank] */
  pen_check(taken != NULL, "no memory for the rounds of %u pairs of ranks", count);
  for (uint32_t c = 0; c < count; c++) {
    const struct pen_channel *channel = &profile->channels[c];
    uint32_t r = 0;
    while (taken[(size_t)r * rank_count + channel->from_rank] ||
           taken[(size_t)r * rank_count + channel->to_rank]) {
      r++;
    }
    taken[(size_t)r * rank_count + channel->from_rank] =
        taken[(size_t)r * rank_count + channel->to_rank] = true;
    round[c] = r;
    rounds = r + 1 > rounds ? r + 1 : rounds;
  }
  free(taken);
  return rounds;
}
