/* print.h: pictures of a plan other than C. */
#ifndef PEN_PRINT_H
#define PEN_PRINT_H

#include <stdio.h>

#include "runtime/plan.h"

/* A map of every rank's arena: its parts in bytes, then the activation blocks with the rows between which each is in use. */
void pen_print_memory(FILE *out, const struct pen_plan *plan);

#endif
