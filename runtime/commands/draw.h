/* draw.h: draws the next token of a text by the options of the command (sample.h). */
#ifndef PEN_DRAW_H
#define PEN_DRAW_H

#include "runtime/base/options.h"
#include "runtime/commands/sample.h"
#include "runtime/commands/texts.h"

struct pen_draw {
  struct pen_sampling sampling;
  double penalty;
  size_t vocab;
  double *weights;  /* [vocab], and `order`: pen_sample()'s */
  uint32_t *order;  /* [vocab] */
  float *penalised; /* [vocab] */
};

/* Allocates, before the seal. */
void pen_draw_open(struct pen_draw *draw, const struct pen_options *options, size_t vocab);

/* From then on draws as these options say. */
void pen_draw_set(struct pen_draw *draw, const struct pen_options *options);

/* How many of the logits [vocab] are not finite. */
size_t pen_draw_not_finite(const struct pen_draw *draw, const float *logits);

/* The token that follows the text's, from logits [vocab]; PEN_NONE: some are not finite. It depends
 * on the text and its key alone, not on what else the step computes. */
uint32_t pen_draw(const struct pen_draw *draw, const struct pen_text *text, const float *logits);

#endif
