/* model_files.h: the safetensors files that hold the weights of one model, as Hugging Face's
 * transformers stores them: one file, or several with an index that says which tensor is in which.
 * Reading allocates and belongs before the seal; every function ends the process through pen_fail()
 * when a file is bad (PEN_EXIT_DATA), or absent or unreadable (PEN_EXIT_NO_INPUT), naming it and
 * the tensor. */
#ifndef PEN_MODEL_FILES_H
#define PEN_MODEL_FILES_H

#include <stdbool.h>

#include "runtime/plan/plan.h"

struct pen_model_files; /* open files whose headers have been checked */

/* `path` is a safetensors file, an index (its name ends in ".json"), or a folder that holds
 * model.safetensors or else model.safetensors.index.json. It must hold every weight of the plan, in
 * its shape, and no other tensor, except those that are no weights: masks and frequencies that the
 * model computes, and the head of a tied model, which is its embedding. Names may lack their first
 * part ("transformer.", "model."), if the model was stored without its head. */
struct pen_model_files *pen_model_files_open(const char *path, const struct pen_plan *plan);
void pen_model_files_close(struct pen_model_files *shards);

/* Reads the tensor of a weight into out[pen_tensor_elements()], widened to f32. Fails on an element
 * that is not finite, and, where the folder has the manifest.json of a checkpoint, on bytes whose
 * SHA-256 is not the one there. The plan must be that of pen_model_files_open(). */
void pen_model_files_read(const struct pen_model_files *shards, const struct pen_weight *weight,
                          float *out);

/* Whether the folder has a manifest.json that is not of a checkpoint, and was ignored. */
bool pen_model_files_beside_foreign(const struct pen_model_files *shards);

/* A number for the weights of that plan: of each its dtype and its first bytes, so that it costs no
 * reading of the whole. */
uint32_t pen_model_files_sample(const struct pen_model_files *shards, const struct pen_plan *plan);

#endif
