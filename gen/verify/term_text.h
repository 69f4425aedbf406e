/* term_text.h: values of a stage's terms in words, for messages. */
#ifndef PEN_TERM_TEXT_H
#define PEN_TERM_TEXT_H

#include <stdint.h>

#include "gen/verify/stage_terms.h"

/* What makes a value, in words; 0: "nothing". */
const char *pen_term_text(const struct pen_plan *plan, const struct pen_terms *terms,
                          uint32_t value);

/* Why a value is not the wanted one, as a part of a sentence: the first place where the terms
 * differ. */
const char *pen_term_difference(const struct pen_plan *plan, const struct pen_terms *terms,
                                uint32_t wanted, uint32_t found);

#endif
