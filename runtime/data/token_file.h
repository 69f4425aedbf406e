/* token_file.h: a file of data as windows of tokens (docs/contracts.md section 9). A plain file, in
 * llm.c's format, a NumPy array (npy_file.h) or Megatron-LM's (indexed_file.h), is one stream of
 * tokens, divided into windows of `sequence` tokens; a packed file (packed_file.h) lists its own
 * windows, which may be shorter and are then padded. llm.c's format and packed files may have a
 * mask, which says which targets count; the others are ignored.
 *
 * A model whose inputs data have by their names reads safetensors files instead (named_inputs.h):
 * a window is a sample then.
 *
 * Data may be several files, of any formats: their windows follow each other in the order of the
 * files, and none spans two. Each file is a struct pen_data of its own then, and the whole has the
 * numbers of its first windows; what a window holds is asked of its file. In a blend (blend.h) each
 * file is read from epoch to epoch by itself, in an order of its own where it is shuffled. */
#ifndef PEN_TOKEN_FILE_H
#define PEN_TOKEN_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/options.h"
#include "runtime/data/blend.h"
#include "runtime/data/indexed_file.h"
#include "runtime/data/named_inputs.h"
#include "runtime/data/packed_file.h"
#include "runtime/data/window_order.h"
#include "runtime/plan/plan.h"

/* A file is known by its size and the SHA-256 of its header and of blocks spread over it. */
struct pen_data_file_id {
  uint64_t weight; /* in a blend; 0: in none */
  uint64_t bytes;
  unsigned char checksum[PEN_DIGEST_BYTES];
};

enum { PEN_DATA_FILES_MAX = 16384 };

/* More than a run reads: a blend has no end. */
#define PEN_BLEND_WINDOWS (UINT64_C(1) << 62)

struct pen_data {
  const char *path;            /* null without a file; of several: "FILE and 2 more files" */
  const unsigned char *tokens; /* mapped, little-endian; null without a file; the first file's */
  const struct pen_named_input *named;         /* [plan's inputs] of a safetensors file, likewise;
                                                  null: it is another file, or there is none */
  const struct pen_named_input *named_targets; /* which of these has the targets; null: none */
  struct pen_data_file_id file;                /* of several files: that of the list of theirs */
  struct pen_data *files;                      /* [file_count], null: one file, or none */
  const struct pen_data_file_id *ids;          /* likewise */
  const uint64_t *first_window;                /* [file_count + 1], the last: window_count */
  struct pen_blend blend;                      /* nodes null: none */
  uint32_t file_count;                         /* 0: one file, or none */
  uint32_t token_bytes;                        /* 2, 4 or 8 */
  const unsigned char *mask; /* which tokens are targets that count (target_mask.h); null: all */
  uint32_t mask_crc;         /* of the mask, or of a packed file's index with it; 0: no mask */
  struct pen_packed packed;  /* header null: a plain file */
  struct pen_indexed indexed;
  struct pen_window_order order;
  uint64_t token_count;  /* of a plain file */
  uint64_t window_count; /* PEN_BLEND_WINDOWS, or samples, or the packed file's, or floor((tokens -
                            1)/sequence), or, to the end, that rounded up */
  uint64_t sequence, vocab,
      microbatch; /* sequence: of a plain file's windows, and of the rows that are filled */
  uint32_t normal_key[2][2]; /* of streams x and y */
  bool loss_is_sum;          /* the loss has no share of its targets */
  const struct pen_share
      *shares; /* of its losses, of the plan; their count, 0: the loss has none */
  uint32_t share_count;
  bool loss_of_microbatch; /* each share is over a microbatch */
  bool to_end; /* the file is read once: windows past its last one have no targets that count */
  /* Set before each step, by pen_data_prepare_step(), and before each row: */
  uint64_t cursor;
  uint64_t step_windows; /* of all microbatches of the step and all replicas */
  uint64_t
      step_targets;     /* that are not ignored, of all microbatches of the step and all replicas */
  uint64_t step_losses; /* what the loss of the step is over: the same, or samples of losses that
                           have shares, unless all are 0; 0: it has no loss */
  uint64_t step_samples;        /* of a file that has inputs by name; else 0 */
  double share[PEN_SHARES_MAX]; /* [share_count] */
  uint64_t epoch;               /* the last one, from 2, that begins in the step; 0: none does */
  uint64_t last_epoch;          /* that of the step's last window, from 1; 0: without a file */
  uint64_t read_ns;             /* in the step so far: to read tokens, in the ops that do */
  uint64_t first_microbatch, microbatch_index; /* the replica's first; the action's, within it */
};

/* Opens and checks a token file, or a safetensors file if the plan has inputs of one (path null:
 * none), for rows of up to `sequence` tokens. Fails: 66 if
 * it is absent, 65 if it is damaged, of another format, or has no target that counts. With
 * `ids_bits` (16 or 32; 0: none) a file of no known format is ids alone. `seed` is that of the
 * normals. */
void pen_data_open(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                   const char *path, uint32_t ids_bits, uint64_t seed);

/* The same for the files of a list, in its order; an empty list is no file. With `weights`, one for
 * each, above 0 and less than 2^63 in all, the files are blended (null: they are not). Allocates
 * what is kept to the end of the process. Fails (64) with more than PEN_DATA_FILES_MAX. */
void pen_data_open_files(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                         const struct pen_texts *paths, const uint64_t *weights, uint32_t ids_bits,
                         uint64_t seed);

/* The same for so many samples that a process gives which uses the library (mailbox.h): what one
 * step reads, always there; none: the model makes its own. They are no file: `tokens` is null. */
void pen_data_open_given(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                         uint64_t seed, const struct pen_named_input *named, uint32_t named_count,
                         uint64_t samples);

/* The order of `--shuffle` with that seed. */
void pen_data_shuffle(struct pen_data *data, uint64_t seed);

/* The identity of a list: one file's own, or of several the sum of their bytes and the SHA-256 of
 * their identities. */
struct pen_data_file_id pen_data_identify(const struct pen_data_file_id *ids, uint64_t count);

/* What windows of the data are called. */
static inline const char *pen_data_windows_text(const struct pen_data *data) {
  return data->named == NULL ? "windows" : "samples";
}

/* The same for a token file that is read once, whatever inputs the plan has: the tokens after a
 * plain file's last full window form a window too, padded, with ignored targets, and all targets of
 * windows past the last one are ignored. Fails (65) if there is no target. */
void pen_data_open_to_end(struct pen_data *data, const struct pen_plan *plan, uint64_t sequence,
                          const char *path, uint32_t ids_bits, uint64_t seed);

/* The file's token at an index that a window holds, or the target after it; UINT32_MAX where it has
 * more than 32 bits. */
uint32_t pen_data_token(const struct pen_data *data, uint64_t index);

#endif
