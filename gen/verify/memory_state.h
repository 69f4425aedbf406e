/* memory_state.h: the bytes of one rank's arena while memory.c runs two steps. */
#ifndef PEN_MEMORY_STATE_H
#define PEN_MEMORY_STATE_H

#include "gen/verify/extent_map.h"
#include "gen/verify/internal.h"
#include "gen/verify/op_trace.h"

/* What a byte range holds. */
struct pen_range_content {
  uint32_t tensor; /* PEN_NONE: nothing that may be read; tensor_count: the head's gradient of a
                      tied weight */
  uint32_t microbatch;
  uint32_t writer; /* action + 1; 0: nothing yet */
  uint32_t sender; /* action + 1 of the last SEND of this step that reads it; 0: none */
  uint8_t step;
  bool in_flight; /* a message may arrive at any time */
};

/* One rank. */
struct pen_memory_state {
  struct pen_check_context *c;
  const struct pen_rank_context *context;
  struct pen_tracer *tracer;
  struct pen_program_trace *trace;
  uint32_t *trace_of; /* [action]: index into `trace` */
  size_t trace_count;
  struct pen_address_map map;
  struct pen_range_content *content; /* [range] */
  uint32_t *mark, mark_count;        /* [range]; each check of an overlap has a number of its own */
  uint32_t step, action;             /* in progress */
  uint32_t *const *earliest;         /* [step][message]: see pen_earliest_arrivals() */
  uint32_t *first_event;   /* [actions complete, over both steps]: list of what may arrive then */
  uint32_t *next_event;    /* [step * message_count + n] */
  const uint32_t *message; /* [message_count]: the messages that the rank receives */
  uint32_t message_count;
  struct pen_byte_ranges *target; /* [received message] */
  struct pen_byte_ranges *source; /* [SEND to a neighbour stage] */
  uint32_t *incoming;     /* [message of the plan]: its index among the received ones of its rank */
  uint64_t *unsharded_at; /* [stage]: address of its unsharded weights */
  uint8_t *added;         /* [own weight, then tie][microbatch]: accumulated in this step */
  uint8_t *owes_loss; /* [microbatch]: the last stage's forward of this step has written no loss */
};

#endif
