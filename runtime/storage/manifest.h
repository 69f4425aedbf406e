/* manifest.h: manifest.json, which makes a folder of tensors a checkpoint: its state
 * (checkpoint_state.h), the model digest, and the SHA-256 of every tensor's bytes.
 */
#ifndef PEN_MANIFEST_H
#define PEN_MANIFEST_H

#include <stdint.h>

#include "runtime/storage/checkpoint_tensors.h"
#include "runtime/storage/checkpoint_state.h"
#include "runtime/plan/plan.h"

/* Writes the manifest to an open, empty file. Calls no allocator. 0, or -1 with errno. */
int pen_manifest_write(int fd, const struct pen_plan *plan,
                       const struct pen_checkpoint_state *state,
                       unsigned char (*digests)[PEN_DIGEST_BYTES]);

/* A manifest that was read. */
struct pen_manifest {
  struct pen_checkpoint_state state; /* without its updates */
  unsigned char model_digest[PEN_DIGEST_BYTES];
  unsigned char (*digests)[PEN_DIGEST_BYTES]; /* [PEN_CHECKPOINT_TENSORS * pen_entry_count()],
                                                 of the tensors of the weights; zeros
                                                 for moments that have none: the weight was frozen,
                                                 or they were not wanted */
  uint64_t *updates; /* [weight_count], as struct pen_update_counts; 0 without moments */
};

/* Whether FOLDER/manifest.json is there, and a checkpoint's: other tools write files of that name,
 * too. Fails as pen_manifest_read() if it is no JSON, which may be a checkpoint's that was damaged.
 */
enum pen_manifest_found { PEN_MANIFEST_ABSENT, PEN_MANIFEST_FOREIGN, PEN_MANIFEST_OURS };
enum pen_manifest_found pen_manifest_find(const char *folder, const struct pen_plan *plan);

/* Reads and checks FOLDER/manifest.json, with the checksums of the parts up to `last`. Fails with
 * the file's name: PEN_EXIT_NO_INPUT if it is absent or unreadable, PEN_EXIT_DATA if it is damaged
 * or lacks the checksum of a value. Allocates: pen_manifest_free(). */
void pen_manifest_read(struct pen_manifest *manifest, const char *folder,
                       const struct pen_plan *plan, enum pen_checkpoint_tensor last);

/* The part of pen_manifest_read() that needs no weights: step, cursor and model digest. Fails in
 * the same way; nothing is to be freed. */
void pen_manifest_read_state(struct pen_manifest *manifest, const char *folder,
                             const struct pen_plan *plan);

/* Fails (PEN_EXIT_DATA) unless `digest` is that of a part of tensor `number` of a weight, which was
 * read from a file. */
void pen_manifest_expect(const struct pen_manifest *manifest, const struct pen_plan *plan,
                         uint32_t weight_index, uint32_t number, enum pen_checkpoint_tensor part,
                         const char *file, const unsigned char digest[PEN_DIGEST_BYTES]);
void pen_manifest_free(struct pen_manifest *manifest);

#endif
