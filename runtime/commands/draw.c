/* draw.c: see draw.h. */
#include "runtime/commands/draw.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/base/check.h"

void pen_draw_set(struct pen_draw *draw, const struct pen_options *options) {
  draw->sampling = (struct pen_sampling){.temperature = options->temperature,
                                         .top_k = options->top_k,
                                         .top_p = options->top_p,
                                         .min_p = options->min_p};
  draw->penalty = options->repetition_penalty;
}

void pen_draw_open(struct pen_draw *draw, const struct pen_options *options, size_t vocab) {
  *draw = (struct pen_draw){.vocab = vocab,
                            .weights = calloc(vocab, sizeof *draw->weights),
                            .order = calloc(vocab, sizeof *draw->order),
                            .penalised = calloc(vocab, sizeof *draw->penalised)};
  pen_draw_set(draw, options);
  pen_check(draw->weights != NULL && draw->order != NULL && draw->penalised != NULL,
            "no memory to draw from %zu logits", vocab);
}

size_t pen_draw_not_finite(const struct pen_draw *draw, const float *logits) {
  size_t wrong = 0;
  for (size_t i = 0; i < draw->vocab; i++) {
    wrong += !isfinite(logits[i]);
  }
  return wrong;
}

uint32_t pen_draw(const struct pen_draw *draw, const struct pen_text *text, const float *logits) {
  if (pen_draw_not_finite(draw, logits) > 0) {
    return PEN_NONE;
  }
  if (draw->penalty != 1.0) {
    pen_penalise_repetition(draw->penalised, logits, draw->vocab, text->token, text->written,
                            draw->penalty);
    logits = draw->penalised;
  }
  const double uniform =
      pen_uniform(text->key, text->number, text->written - text->prompt->token_count);
  return (uint32_t)pen_sample(logits, draw->vocab, &draw->sampling, uniform, draw->weights,
                              draw->order);
}
