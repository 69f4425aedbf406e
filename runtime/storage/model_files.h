/* model_files.h: the safetensors files that hold the weights of one model, as Hugging Face's
 * transformers stores them: one file, or several with an index that says which tensor is in which.
 * Reading allocates and belongs before the seal; every function ends the process through pen_fail()
 * when a file is bad (PEN_EXIT_DATA), or absent or unreadable (PEN_EXIT_NO_INPUT), naming it and
 * the tensor. */
#ifndef PEN_MODEL_FILES_H
#define PEN_MODEL_FILES_H

#include <stdbool.h>

#include "base/options.h"
#include "runtime/plan/plan.h"
#include "runtime/storage/manifest.h"

struct pen_model_files; /* open files whose headers have been checked */

/* `path` is a safetensors file, an index (its name ends in ".json"), or a folder that holds
 * model.safetensors or else model.safetensors.index.json. It must hold every weight of the plan, in
 * its shape. Names may lack their first part ("transformer.", "model."), if the model was stored
 * without its head; and those of Gemma 3 may begin with "language_model.", in a model of text and
 * images. */
struct pen_model_files *pen_model_files_open(const char *path, const struct pen_plan *plan);
void pen_model_files_close(struct pen_model_files *shards);

/* Fails (PEN_EXIT_DATA) if there are tensors that the model does not use, except masks and
 * frequencies that it computes, and those that `ignored` names: by their name, or by its beginning
 * or ending at a dot. The head of a tied model may be there if it equals the embedding. */
void pen_model_files_check_unused(const struct pen_model_files *shards,
                                  const struct pen_texts *ignored);

/* Reads the tensors of a weight into out[pen_tensor_elements()], widened to f32. Fails on an
 * element that is not finite, and, where the folder has the manifest.json of a checkpoint, on bytes
 * whose SHA-256 is not the one there. The plan must be that of pen_model_files_open(). */
void pen_model_files_read(const struct pen_model_files *shards, const struct pen_weight *weight,
                          float *out);

/* The manifest.json of the folder, if it is a checkpoint's; one of another tool is ignored. */
enum pen_manifest_found pen_model_files_manifest(const struct pen_model_files *shards,
                                                 const struct pen_manifest **manifest);

/* A number for the weights of that plan: of each its dtype and its first bytes, so that it costs no
 * reading of the whole. */
uint32_t pen_model_files_sample(const struct pen_model_files *shards, const struct pen_plan *plan);

#endif
