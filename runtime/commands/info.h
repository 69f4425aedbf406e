/* info.h: the command info: what this binary was built for. */
#ifndef PEN_INFO_H
#define PEN_INFO_H

#include "runtime/base/options.h"

#include "runtime/plan/plan.h"

/* Writes it to standard output, as JSON or for a person. Opens the kernels to say what they chose
 * on this machine. */
void pen_info(const struct pen_plan *plan, const struct pen_options *options);

#endif
