/* routes.h: layers of experts as terms. */
#ifndef PEN_VERIFY_ROUTES_H
#define PEN_VERIFY_ROUTES_H

#include "gen/verify/stage_terms.h"

/* Notes a problem with the layers of experts of a stage whose programs ran; `action`: its F. */
bool pen_check_routes(const struct pen_stage_terms *s, uint32_t action);

/* Whether a value is the result of a layer of experts: of its last slice. */
bool pen_is_experts_layer(const struct pen_terms *terms, uint32_t value);

/* What such a layer reads, however many slices it has. */
enum { PEN_EXPERTS_INPUTS = 7 }; /* x, expert, weight, gate, up, down, addend */
void pen_experts_inputs(const struct pen_terms *terms, uint32_t value,
                        uint32_t input[PEN_EXPERTS_INPUTS]);

#endif
