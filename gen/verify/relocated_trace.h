/* relocated_trace.h: what the program of a compute action reads and writes, traced once for all
 * frames in which its operands overlap alike. */
#ifndef PEN_RELOCATED_TRACE_H
#define PEN_RELOCATED_TRACE_H

#include "gen/verify/op_trace.h"

/* Runs the program of a compute action over its frame. Returns false after it noted a problem. */
bool pen_trace_action(struct pen_tracer *tracer, uint32_t action, struct pen_program_trace *trace);

#endif
