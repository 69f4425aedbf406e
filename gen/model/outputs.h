/* outputs.h: values of the last stage that model.outputs names, which a step keeps to its end (base
 * RESULT). Generation has none. */
#ifndef PEN_OUTPUTS_H
#define PEN_OUTPUTS_H

#include <stdbool.h>
#include <stdint.h>

struct pen_graph; /* gen/model/graph.h */

/* In the last stage, of a step with losses: room for the values, none of which is made yet. */
void pen_outputs_start(struct pen_graph *graph);

/* Says that a value of the forward has that name: the prefix of a description's unit, and the name
 * in its kind; and whether it is of samples, not of tokens. If model.outputs has the name, each
 * profile computes it by itself (fuse.c), and a step with losses keeps its memory. */
void pen_output_made(struct pen_graph *graph, const char *name, uint32_t value, bool of_samples);

/* Fails (78) if model.outputs has the name of a value that is computed as that of another name. */
void pen_output_alias(const struct pen_graph *graph, const char *name, const char *of);

/* Fails (78) if the last stage does not make a value that model.outputs names. */
void pen_outputs_check(const struct pen_graph *last);

/* The bytes of the values of a microbatch, each aligned. */
uint64_t pen_output_bytes(const struct pen_graph *graph);

#endif
