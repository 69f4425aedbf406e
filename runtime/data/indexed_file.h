/* indexed_file.h: token ids in an indexed dataset of Megatron-LM, two files: X.bin has the tokens
 * of all sequences, one after the other, and X.idx says what they are:
 *
 *   offset  bytes
 *        0      9  "MMIDIDX" and two zeros
 *        9      8  version: 1
 *       17      1  type of the numbers: 4 int32, 5 int64, 8 uint16; others are no tokens
 *       18      8  sequences, S
 *       26      8  entries of the documents, D
 *       34    4 S  int32: numbers of each sequence
 *              8 S  int64: the byte of X.bin at which it begins
 *              8 D  int64: the first sequence of each document, then S
 *
 * All numbers are little-endian; those of the index are not aligned. (Of several modalities, S
 * bytes follow, a mode for each sequence: such files are refused.) */
#ifndef PEN_INDEXED_FILE_H
#define PEN_INDEXED_FILE_H

#include <stdint.h>

/* What an index says of its tokens. */
struct pen_indexed {
  const unsigned char *index; /* null: a file without one */
  uint64_t index_bytes;
  uint64_t sequence_count;
  uint64_t document_count; /* documents without tokens count, too */
  uint64_t token_count;
  uint32_t number_bytes; /* 2, 4 or 8 */
};

/* The name of the index of a file whose name ends in .bin, if there is one, which free() releases;
 * else null. */
char *pen_indexed_find(const char *path);

/* Reads an index of `bytes` bytes, which is used from then on, and checks it against the file that
 * it belongs to. Fails (65) if it is damaged, does not fit the file, or is of other numbers. */
struct pen_indexed pen_indexed_read(const char *path, uint64_t file_bytes, const char *index_path,
                                    const unsigned char *index, uint64_t index_bytes);

/* For each of `count` tokens from `first` on, sets which of them its document begins with: 0 if it
 * begins before them. */
void pen_indexed_starts(const struct pen_indexed *indexed, uint64_t first, uint64_t count,
                        int32_t *start);

#endif
