/* op_trace.h: what the program of a compute action reads and writes in a frame. */
#ifndef PEN_OP_TRACE_H
#define PEN_OP_TRACE_H

#include "gen/verify/extent_map.h"
#include "gen/verify/program_collectives.h"
#include "gen/verify/rank_context.h"
#include "runtime/plan/plan.h"

/* One program in one frame, seen from outside: indices into the tracer's lists. */
struct pen_program_trace {
  uint32_t read_first, read_count; /* extents that it reads from outside */
  uint32_t left_first, left_count; /* extents that it leaves written */
  uint32_t weight_first,
      weight_count;     /* the weights whose gradients it accumulates into, once for each time */
  uint64_t loss_offset; /* where it writes the loss; UINT64_MAX: it writes none */
};

/* The operands of a program that count from one base and are received, or are not: the bytes that
 * they span, counted from the base. */
struct pen_operand_block {
  uint64_t first, past;
  uint8_t base;
  bool received;
};

struct pen_cached_trace; /* a trace of a program in one frame, to be relocated into others */

/* The traces of one program. */
struct pen_cached_traces {
  bool known;                      /* the blocks are */
  bool partial;                    /* it has gradients of a microbatch (base PARTIAL) */
  bool exchange;                   /* it has slots of tensor ranks (base EXCHANGE) */
  struct pen_operand_block *block; /* those in the receive region or the activation part */
  size_t block_count;
  struct pen_cached_trace *first;
  uint32_t count;
};

/* The traces of one rank, and the state of the trace in progress. */
struct pen_tracer {
  const struct pen_rank_context *context;
  struct pen_extent *extent;
  uint32_t *weight;
  size_t extent_count, weight_count;
  struct pen_extent_map map;        /* what the program in progress has written */
  uint32_t *written, *read, run;    /* [tensor] == run: by the program in progress */
  struct pen_cached_traces *cached; /* [program] */
  struct pen_program_collectives collectives;
};

/* Empties a tracer for another rank; keeps its lists. */
void pen_tracer_start(struct pen_tracer *tracer, const struct pen_rank_context *context);
/* Frees what pen_tracer_start() allocated. */
void pen_tracer_free(struct pen_tracer *tracer);
/* Runs the program of a compute action over its frame. Returns false after it noted a problem. */
bool pen_trace_program(struct pen_tracer *tracer, uint32_t action, struct pen_program_trace *trace);
/* Runs the ops that make the constants, once before the first step. */
bool pen_trace_start(struct pen_tracer *tracer);

#endif
