/* mailbox.h: how a process that uses the library (runtime/library/penstock.h) talks with the
 * command that runs its ranks: one shared memory file.
 *
 *     | struct pen_mailbox | the samples of a step, by input | names and extents of the weights |
 *     | values of one weight | scores of a step, twice | texts, and their tokens |
 *     | names and extents of the outputs | outputs of a step |
 *
 * The library makes it with the first part, and starts the command train, which lengthens it by
 * what a step reads and describes the inputs. The caller then writes a request, and increments
 * `requests`; each rank of the command serves it, and the last one that has done so increments
 * `answers`. So nobody reads or writes here when the caller does, and the reverse. The first answer
 * comes when the ranks can make a step. On several hosts each has a command, a caller and a
 * mailbox: all callers ask for the same (runtime/rank/agreement.h). */
#ifndef PEN_MAILBOX_H
#define PEN_MAILBOX_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/message.h"
#include "runtime/base/futex_counter.h"
#include "runtime/plan/plan.h"

/* The first word: another version of the layout is another number. */
#define PEN_MAILBOX_VERSION UINT64_C(0x70656e6d61696c05)

enum {
  PEN_MAILBOX_INPUTS_MAX = 64,
  PEN_MAILBOX_ALIGNMENT = 64,
};

/* What the caller asks of the ranks. */
enum pen_request {
  PEN_REQUEST_STEP,
  PEN_REQUEST_EVALUATE,
  PEN_REQUEST_SCORE,
  PEN_REQUEST_GENERATE,
  PEN_REQUEST_SAVE,
  PEN_REQUEST_READ_WEIGHT,
  PEN_REQUEST_WRITE_WEIGHT,
  PEN_REQUEST_CLOSE
};

/* What samples are for: the steps of a profile read so many. */
enum pen_samples_use {
  PEN_SAMPLES_OF_STEP,
  PEN_SAMPLES_OF_EVALUATION,
  PEN_SAMPLES_OF_SCORES,
  PEN_SAMPLES_USES
};

/* An input of the model. */
struct pen_mailbox_input {
  char name[PEN_SHOWN_BYTES];
  char wanted[2 * PEN_SHOWN_BYTES]; /* "I32 or I64 [samples, 16]" */
  uint32_t serving[2];              /* enum pen_stored_dtype_index: what the caller may give */
  uint32_t dim_count;               /* of a sample, without the samples */
  uint64_t dim[PEN_INPUT_DIMS_MAX];
  uint64_t elements; /* of a sample */
  uint64_t limit;    /* ids are below; 0: any */
  bool may_ignore;   /* its ids may be PEN_IGNORED_TARGET */
  bool scored;       /* scores read it, too */
  uint64_t offset;   /* of sample 0, in the mailbox */
  uint32_t given;    /* by the caller for this step: one of `serving` */
};

/* A weight of the model, whole, as files have it: in f32. */
struct pen_mailbox_weight {
  char name[PEN_SHOWN_BYTES];
  uint32_t weight; /* of the plan: the first of its splits */
  uint32_t dim_count;
  uint64_t dim[PEN_FILE_DIMS_MAX], elements;
};

/* A value that a step gives back (model.outputs). */
struct pen_mailbox_output {
  char name[PEN_SHOWN_BYTES];
  uint32_t stored; /* enum pen_stored_dtype_index */
  uint64_t dim[3]; /* samples of the last step, 0: there was none; tokens; width */
  uint64_t offset; /* of sample 0, in the mailbox */
};

/* What a step has found, as in the log. Without targets loss and norm are not set. */
struct pen_mailbox_step {
  double loss, norm, learning_rate;
  uint64_t step, targets;
};

/* A text of a generation; its tokens lie elsewhere. */
struct pen_mailbox_text {
  uint64_t prompt, count; /* tokens of the prompt, and of the whole */
};

/* Of one generation: how many texts, and how they are drawn (pen_session_generate()). */
struct pen_mailbox_generation {
  uint64_t text_count, tokens, top_k, seed;
  double temperature, top_p, min_p, repetition_penalty;
  int64_t end_of_text;
};

struct pen_mailbox {
  uint64_t version;
  struct pen_futex_counter requests, answers;
  _Atomic uint64_t done;              /* requests that ranks have served, each counted for itself */
  int64_t caller;                     /* its process */
  uint64_t bytes;                     /* of the whole, when the first answer has come */
  uint64_t samples[PEN_SAMPLES_USES]; /* 0: the model reads none, or has no such steps */
  uint32_t rank_count;                /* of the command */
  uint32_t input_count;
  struct pen_mailbox_input inputs[PEN_MAILBOX_INPUTS_MAX];
  uint32_t weight_count;
  uint64_t weights_offset; /* of the struct pen_mailbox_weight [weight_count] */
  uint64_t values_offset;  /* of the values of one weight */
  uint64_t scores_offset;  /* of the scores: f64 -ln p of each target that counts */
  uint64_t score_count;    /* of one request: [samples][tokens]; 0: the model has none */
  uint64_t scored_offset;  /* of those of the last one: the first or second half */
  uint64_t text_limit;     /* texts of a generation, at most; 0: the model makes none */
  uint64_t text_tokens;    /* tokens of a text, at most, with its prompt */
  uint64_t texts_offset;   /* of the struct pen_mailbox_text [text_limit] */
  uint64_t tokens_offset;  /* of the uint32_t [text_limit][text_tokens] */
  uint64_t vocab;
  uint32_t output_count;
  uint64_t outputs_offset; /* of the struct pen_mailbox_output [output_count] */
  struct pen_mailbox_generation generation;
  uint32_t request;      /* enum pen_request */
  uint32_t requested;    /* which of the weights */
  double learning_rate;  /* of the steps from now on; not a number: the topology's */
  char path[PATH_MAX];   /* of a save */
  char loaded[PATH_MAX]; /* the folder whose checkpoint the command continues; "": none */
  int32_t status;        /* of the request, an exit status; the message is why it is not 0 */
  struct pen_mailbox_step step;
  char no_texts[PEN_MESSAGE_BYTES + 1]; /* "is no language model": why it has no texts or scores */
  char message[PEN_MESSAGE_BYTES + 1];
};

/* Where a caller's samples are, in messages. */
#define PEN_CALLER_SAMPLES "samples"

/* In the command: takes `serve FD` off a command line, and maps the first part; from then on the
 * line of an error is written there, not printed. Null: the command line does not begin so. */
struct pen_mailbox *pen_mailbox_take(int *argc, char ***argv);

/* In the command, before it forks: makes the mailbox that long. Returns all of it, mapped again, to
 * the end of the process; ranks write the first part through either mapping. Fails (71). */
unsigned char *pen_mailbox_lengthen(struct pen_mailbox *mailbox, uint64_t bytes);

/* Whether a use reads an input. */
static inline bool pen_mailbox_reads(const struct pen_mailbox_input *input,
                                     enum pen_samples_use use) {
  return use != PEN_SAMPLES_OF_SCORES || input->scored;
}

/* In the caller, before ranks write results there of which each host has a part: all ones, not a
 * number where nothing is written. */
static inline void pen_mailbox_clear(struct pen_mailbox *mailbox, uint64_t offset, uint64_t bytes) {
  memset((unsigned char *)mailbox + offset, 0xff, bytes);
}

/* Where the next part may begin. */
static inline uint64_t pen_mailbox_aligned(uint64_t bytes) {
  return (bytes + PEN_MAILBOX_ALIGNMENT - 1) / PEN_MAILBOX_ALIGNMENT * PEN_MAILBOX_ALIGNMENT;
}

/* In a rank: it has served a request, or can. */
void pen_mailbox_answer(struct pen_mailbox *mailbox);

#endif
