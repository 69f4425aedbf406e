/* data.h: the inputs of steps. It includes nothing and no file includes it.
 *
 *   token_file.h    a file of tokens, as windows of `sequence` tokens
 *   packed_file.h   a file whose windows hold several documents, with an index
 *   npy_file.h      token ids in a NumPy array
 *   indexed_file.h  token ids in Megatron-LM's format, with an index of their documents
 *   named_inputs.h  inputs that a safetensors file has by their names
 *   mapped_file.h   files in memory
 *   target_mask.h   which tokens of a file are targets that count
 *   bucket.h        which sequence length a step has
 *   window_order.h  which window is read at each position: in the order of the file, or shuffled
 *   blend.h         which file of a blend the next window comes from
 *   data_place.h    how far a run has read its data, for a later one that continues
 *   step_inputs.h   the data ops of a step: tokens, targets, positions, or random inputs
 *
 * In: a file that penstock-tokens wrote, or tensors of samples, or a seed; the cursor of a step
 * (docs/contracts.md section 9). Out: the inputs of each microbatch, in the memory that the plan
 * gives them. Files are mapped and checked before the first step. */
#ifndef PEN_DATA_H
#define PEN_DATA_H
#endif
