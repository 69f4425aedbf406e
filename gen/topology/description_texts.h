/* description_texts.h: which of a description's ops make the logits of texts. */
#ifndef PEN_DESCRIPTION_TEXTS_H
#define PEN_DESCRIPTION_TEXTS_H

#include "gen/topology/description.h"

/* Sets description->texts. Ends the generator (78) if the key `logits` names no value which a
 * LINEAR of the last unit makes. */
void pen_description_find_texts(struct pen_description *description);

/* The rows of the matrix that an op of that unit reads as operand 1; 0: it reads none. */
uint64_t pen_description_table_rows(const struct pen_description *description, size_t unit,
                                    const struct pen_described_op *op);

#endif
