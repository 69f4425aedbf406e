/* error.h: reports a fatal error of the generator; its exit statuses. */
#ifndef PEN_ERROR_H
#define PEN_ERROR_H

#include <stdbool.h>
#include <stdio.h>

/* Exit statuses of docs/contracts.md section 10. */
enum {
  PEN_EXIT_USAGE = 64,
  PEN_EXIT_DATA = 65,
  PEN_EXIT_NO_INPUT = 66,
  PEN_EXIT_INTERNAL = 70,
  PEN_EXIT_CREATE = 73,
  PEN_EXIT_WRITE = 74,
  PEN_EXIT_TOPOLOGY = 78
};

/* The settings that make a model, or a plan, large: a message about a size ends with them. */
#define PEN_MODEL_SETTINGS                                                            \
  "model.layers, model.hidden, model.heads, model.head_dim, model.ffn, model.vocab, " \
  "model.sequence, batch.microbatch"
#define PEN_PLAN_SETTINGS                                                           \
  "pipeline.ranks, pipeline.stages_per_rank, pipeline.microbatches, model.layers, " \
  "tensor_parallel.splits, data_parallel.replicas"

/* Prints a message as a line to standard error. */
void pen_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Flushes standard output, prints the message and a newline to standard error, and exits. */
_Noreturn void pen_stop(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- attempts: what penstock-plan tries may be refused ---- */

enum { PEN_REFUSAL_BYTES = 1024 };

/* What ended an attempt: the arguments of pen_stop(). */
struct pen_refusal {
  int status;
  char text[PEN_REFUSAL_BYTES];
};

/* Runs a function. If it calls pen_stop() with PEN_EXIT_TOPOLOGY or PEN_EXIT_DATA, fills in the
 * refusal and returns false instead of ending the program; then the function must hold nothing but
 * memory of the arena, which the caller releases (arena.h). Other statuses end the program.
 * Attempts do not nest. */
bool pen_attempt(void (*run)(void *context), void *context, struct pen_refusal *refusal);

/* Whether an attempt runs: then there are no warnings. */
bool pen_is_attempting(void);

/* Makes the next pen_stop() end the program. */
void pen_attempt_end(void);

#endif
