/* storage.h: weights and training state in files, whose layout depends on the model, not on ranks
 * (docs/contracts.md section 10). It includes nothing and no file includes it.
 *
 *   safetensors.h      the file format: tensors of weights
 *   model_files.h      the files of a model, as Hugging Face's transformers stores them
 *   initial_weights.h  weights when training starts: from a seed, or from files
 *   loading.h          where a process keeps what it loads or makes
 *   manifest.h, checkpoint_tensors.h      what a checkpoint holds
 *   checkpoint_save.h, checkpoint_load.h, checkpoint_prune.h
 *   memory_checkpoint.h   copies of the ranks' states in memory of their command
 *
 * In: a plan, a rank's arena, a path. Out: the arena filled from files, or files from the arena:
 * each rank reads and writes its own tensors. */
#ifndef PEN_STORAGE_H
#define PEN_STORAGE_H
#endif
