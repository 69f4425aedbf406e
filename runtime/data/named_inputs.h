/* named_inputs.h: inputs that a safetensors file has by their names (plan.def, `inputs`;
 * docs/contracts.md section 9): one tensor an input, (samples, ...). They are read where they lie,
 * in the mapped file. A sample is a row of a microbatch, and a window of the file. */
#ifndef PEN_NAMED_INPUTS_H
#define PEN_NAMED_INPUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/message.h"
#include "runtime/plan/plan.h"

struct pen_mailbox; /* mailbox.h */

/* An input in a file. */
struct pen_named_input {
  const struct pen_input *input; /* of the plan */
  const unsigned char *first;    /* of sample 0; not aligned */
  uint64_t elements;             /* of a sample */
  uint8_t stored;                /* enum pen_stored_dtype_index */
};

/* What a file has to have of an input, with sequences of that many tokens: "I32 or I64 [samples,
 * 16]". */
const char *pen_named_wanted_text(char text[2 * PEN_SHOWN_BYTES], const struct pen_input *input,
                                  uint64_t sequence);

/* Finds the plan's inputs in a mapped file: [plan->input_count], kept to the end of the process,
 * and how many samples there are. Fails (65) with the file, the name, what it has and what is
 * wanted: the file is none of safetensors, an input is missing or has another dtype or other
 * extents than sequences of that many tokens, a tensor is no input, or there is no sample. */
const struct pen_named_input *pen_named_inputs_open(const struct pen_plan *plan, uint64_t sequence,
                                                    const char *path, const unsigned char *file,
                                                    uint64_t bytes, uint64_t *sample_count);

/* Of a model whose inputs have no names, what the two data ops of a language model read: its
 * sequences and what they are to predict. */
enum { PEN_PLAIN_TOKENS, PEN_PLAIN_TARGETS, PEN_PLAIN_INPUTS };

/* The same for samples that a process gives which uses the library: describes the inputs in its
 * mailbox, of which steps have the numbers of samples that it says. Returns the end of their
 * place there. Fails (64). */
uint64_t pen_named_inputs_describe(const struct pen_plan *plan, uint64_t sequence,
                                   struct pen_mailbox *mailbox);

/* The inputs in it, when it is mapped at `all`. */
struct pen_named_input *pen_named_inputs_given(const struct pen_plan *plan,
                                               const struct pen_mailbox *mailbox,
                                               const unsigned char *all);

/* In a rank, before a step: takes which dtypes they have in it. */
void pen_named_inputs_take(struct pen_named_input *named, const struct pen_mailbox *mailbox);

/* Reads a sample of an input as ids. Fails (65) with the element if one is none: it is not below
 * the limit of the input, unless it is -100 and `may_ignore`. */
void pen_named_ids(const struct pen_named_input *named, const char *path, uint64_t sample,
                   bool may_ignore, int32_t *to);

/* Reads `count` elements of a sample, from `at` on, as numbers: exact, or rounded to f32. */
void pen_named_values(const struct pen_named_input *named, uint64_t sample, uint64_t at,
                      uint64_t count, float *to);

/* The sum of the elements of a sample, in f64, in rising order. */
double pen_named_sum(const struct pen_named_input *named, uint64_t sample);

/* The input whose elements are the targets of the step; null: there is none. */
const struct pen_named_input *pen_named_targets(const struct pen_named_input *named,
                                                uint32_t count);

/* How many elements of a sample are not ignored as targets. */
uint64_t pen_named_count_targets(const struct pen_named_input *named, uint64_t sample);

#endif
