/* penstock.h: a deployment of Penstock in a program of one's own: its data and its loop.
 *
 * `make lib TOPOLOGY=NAME` builds libpenstock-NAME.so and penstock-NAME, which stay in one folder.
 * pen_session_open() starts the ranks, as processes of this host, by that binary; none runs in the
 * caller's process, where no signal, affinity or exit handler is set. A session may be used from
 * any thread, by one call at a time. After pen_session_open() nothing here allocates but
 * pen_session_load(), and in the ranks none of steps, evaluations, scores and texts does. Names and
 * extents that a function returns are the session's until it is loaded or closed.
 *
 * Functions return 0, or what the command train would exit with (docs/contracts.md section 10): 64
 * for a mistake of the caller, such as a null pointer, or a call of a process that the one which
 * has opened the session has forked, 65 for samples that do not fit, 66 for what is absent, 73 and
 * 74 for what cannot be created or written, 75 for a lost rank, 79 for divergence.
 * pen_session_message() says why, in the words of train. A session whose ranks have ended returns
 * the same again. */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PEN_API __attribute__((visibility("default")))

/* With ranks on several hosts a program runs on each, and its session has the ranks of that host.
 * All make the same calls, with the samples of the whole step, or the same prompts or weights, and
 * wait for each other: else 65 (other samples) or 64 (another call), with the host and the step.
 * Each has all results but outputs, which are where the last stage's ranks are.
 * pen_session_close() waits for none, and ends the other sessions (75). */

/* Which deployment: libpenstock-NAME.so has the object pen_library_NAME, with _ in place of what is
 * no letter or digit. Several may be in one process. */
struct pen_library {
  const char *name;
};

enum { PEN_SESSION_MESSAGE_BYTES = 1501 };

/* The ranks of a deployment, with their weights and the state of the optimizer. */
struct pen_session;

/* A tensor of samples in memory, contiguous: (samples, ...). */
struct pen_samples {
  const char
      *name; /* of the input, or output; of families other than `described`: tokens, targets */
  const char *dtype; /* as in safetensors: "I32", "I64", "F32", "BF16", "U8" */
  uint32_t dim_count;
  const uint64_t *dim; /* [dim_count], that of the samples first */
  const void *data;
};

/* What a step has found, to the bit what train logs. */
struct pen_step_result {
  double loss, grad_norm; /* NaN in a step without targets */
  double learning_rate;
  uint64_t step, targets; /* optimizer steps so far; targets that count */
};

/* How texts are continued, as by the options of the command generate. */
struct pen_generation {
  uint64_t tokens;                         /* new ones of each text, at most */
  double temperature;                      /* 0: the most likely token, always */
  uint64_t top_k;                          /* 0: all */
  double top_p, min_p, repetition_penalty; /* 1, 0 and 1 change nothing */
  uint64_t seed;
  int64_t end_of_text; /* a text ends with this token; negative: with none */
};

/* A text in the caller's memory: first its prompt, then all of it. */
struct pen_generated {
  uint32_t *token; /* with room for the new tokens */
  uint64_t count;
};

/* Starts the ranks. `options`: words of the command line of train, null at the end, or null:
 * --seed, --init, --checkpoint with --resume, --log, ... but none that says which data are read
 * when. Returns when they can make a step: 0, and *session is to be closed; or a status, and
 * `message` is why. */
PEN_API int pen_session_open(const struct pen_library *library, const char *const *options,
                             struct pen_session **session, char message[PEN_SESSION_MESSAGE_BYTES]);

/* Ends the ranks and releases the session; in a process that the caller has forked only that. Null
 * does nothing. Saves nothing. */
PEN_API void pen_session_close(struct pen_session *session);

/* Why the last call has returned a status; after 0 the last warning of the ranks, or "". */
PEN_API const char *pen_session_message(const struct pen_session *session);

/* The inputs of a step, by their index: name, and what is wanted, "I32 or I64 [samples, 16]"; null
 * past the last. */
PEN_API const char *pen_session_input(const struct pen_session *session, uint32_t index,
                                      const char **wanted);

/* How many samples a step of training or of evaluation reads, over all microbatches and replicas;
 * 0: the model makes its own. Of PEN_SESSION_SCORES: how many log-probabilities
 * pen_session_score() gives of so many samples as an evaluation reads; 0: none, since the model is
 * no language model, or has no input with a target of each token. */
enum pen_session_use { PEN_SESSION_STEP, PEN_SESSION_EVALUATION, PEN_SESSION_SCORES };
PEN_API uint64_t pen_session_samples(const struct pen_session *session, enum pen_session_use use);

/* Makes a step of training with these samples of all inputs, in any order; row i of microbatch j is
 * sample j * batch.microbatch + i. They are copied. Sets *result. Samples that do not fit, as one
 * with an id that is none (65), change nothing. */
PEN_API int pen_session_step(struct pen_session *session, const struct pen_samples *samples,
                             uint32_t count, struct pen_step_result *result);

/* The learning rate of all steps from the next on; not a number: that of the topology's schedule,
 * as at first. 64 for one that is negative or infinite in f32. */
PEN_API int pen_session_set_learning_rate(struct pen_session *session, double learning_rate);

/* The loss of these samples, without a change of weights; *targets: how many count. *loss is NaN
 * without any. */
PEN_API int pen_session_evaluate(struct pen_session *session, const struct pen_samples *samples,
                                 uint32_t count, double *loss, uint64_t *targets);

/* ln p of each target, whatever the loss: `log_probabilities` [samples of an evaluation][tokens of
 * a sequence]; not a number for a target that is ignored. The targets are those of the first input
 * that has one for each token; inputs that only the loss reads may be left out. 64: there are not
 * `score_count`, or none. */
PEN_API int pen_session_score(struct pen_session *session, const struct pen_samples *samples,
                              uint32_t count, double *log_probabilities, uint64_t score_count);

/* The outputs (model.outputs) by their index, of the last step or evaluation: the name, and in
 * *output a tensor (samples, tokens, width) in memory of the session, F32 or BF16, the samples in
 * the order in which they were given. They change with the next call that reads samples; before
 * the first one there are no samples. Null past the last. */
PEN_API const char *pen_session_output(const struct pen_session *session, uint32_t index,
                                       struct pen_samples *output);

/* Continues texts, by the weights as they are: a text is that of generate --prompts with this seed
 * and these prompts. There are at most as many texts as a step of training has samples, and a text
 * is at most as long as a sequence, with its new tokens. 64: more, or a number that is not allowed;
 * 65: a token of a prompt that is none. */
PEN_API int pen_session_generate(struct pen_session *session,
                                 const struct pen_generation *generation,
                                 struct pen_generated *texts, uint32_t count);

/* The weights, by their index: the name, that of files, and the extents; null past the last. */
PEN_API const char *pen_session_weight(const struct pen_session *session, uint32_t index,
                                       uint32_t *dim_count, const uint64_t **dim);

/* Reads or sets all elements of a weight, in the order of files. Moments of the optimizer stay. 65:
 * the model has none of that name, or it has another number of elements, or one is not finite. */
PEN_API int pen_session_read_weight(struct pen_session *session, const char *name, float *values,
                                    uint64_t count);
PEN_API int pen_session_write_weight(struct pen_session *session, const char *name,
                                     const float *values, uint64_t count);

/* Saves the weights and the optimizer as FOLDER/step-NNNNNNNN, as train does, over a checkpoint of
 * that step. The session keeps the folder locked until it saves to another or is closed; 73:
 * another run has locked it. */
PEN_API int pen_session_save(struct pen_session *session, const char *folder);

/* Starts the ranks anew, with the same options, whose paths are from the folder that was current
 * when the session was opened, from the latest checkpoint in FOLDER, as train
 * --checkpoint FOLDER --resume does; also after a rank was lost. A learning rate that was set
 * stays. 66: there is no such folder; the session is unchanged. Another status: its ranks have
 * ended; it may be loaded again. */
PEN_API int pen_session_load(struct pen_session *session, const char *folder);

#ifdef __cplusplus
}
#endif

#endif
