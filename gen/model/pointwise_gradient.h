/* pointwise_gradient.h: the derivative of a program of POINTWISE. */
#ifndef PEN_POINTWISE_GRADIENT_H
#define PEN_POINTWISE_GRADIENT_H

#include "gen/model/pointwise_steps.h"

/* dy times the derivative of a program by an operand; free the steps by pen_free(). */
struct pen_steps_list pen_steps_differentiate(const struct pen_steps_list *program,
                                              uint32_t operand);

#endif
