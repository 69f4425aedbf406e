/* initial_weights.h: where a model's weights come from when training starts: a seed, or a file. */
#ifndef PEN_INITIAL_WEIGHTS_H
#define PEN_INITIAL_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/options.h"
#include "runtime/plan/plan.h"
#include "runtime/storage/loading.h"

/* Makes the weights of one process in its arena, and their copies, from the seed, on the device.
 * Normal weights: element i of a tensor is deviation * n(key of its name, i). Gradients and moments
 * are left alone: a new arena has them at zero. */
void pen_weights_initial(const struct pen_loading *to, uint64_t seed);

/* Fails (PEN_EXIT_USAGE) if a weight of the model has its values from files alone. */
void pen_weights_expect_initial(const struct pen_plan *plan);

/* Writes the same weights, of the whole model, as a safetensors file, laid out as a checkpoint's
 * model.safetensors: through FILE.tmp and a rename. Memory is bounded whatever the model. Fails
 * with the file's name: PEN_EXIT_CANNOT_CREATE, PEN_EXIT_CANNOT_WRITE; then FILE.tmp is removed,
 * and what FILE was before stays. */
void pen_weights_write(const struct pen_plan *plan, const char *file, uint64_t seed);

/* Sets the weights of one process, and their copies, from what pen_model_files_open()
 * takes: a file, an index or a folder. The tensors may be F32, BF16 or F16 and stand in any order,
 * but all must be there, in the right shapes, and finite; each rank reads its own
 * alone. Fails with file and tensor: PEN_EXIT_DATA; PEN_EXIT_NO_INPUT if a file is absent or
 * unreadable. Allocates. */
void pen_weights_load(const struct pen_loading *to, const char *path);

/* The part of pen_weights_load() that needs no arena: everything but the values. Compares what the
 * folder says of its model with the plan (config_check.h, or else the model digest of its
 * manifest), and fails if it holds tensors that the model does not use (model_files.h). Returns
 * false if nothing says more of the model than its tensors' shapes: of a file by itself. `ignored`:
 * keys and tensors that are taken all the same. A launcher that calls it before it starts its ranks
 * has the message once. */
bool pen_weights_check(const struct pen_plan *plan, const char *path,
                       const struct pen_texts *ignored);

#endif
