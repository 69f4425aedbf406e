/* packed_file.h: the packed token file: windows of several documents, or of one each, with an index
 * of what every window holds.
 *
 *   offset  bytes
 *        0      8  "PENPACK1", or "PENPACK2" with a mask
 *        8      4  bytes of a token: 2 or 4
 *       12      4  tokens of the longest window
 *       16      8  windows
 *       24      8  documents of all windows; each split of a cut document counts
 *       32      8  tokens of all windows, padding included
 *       40      8  targets of all windows that count
 *       48      4  CRC-32 of all that follows the tokens
 *       52      4  CRC-32 of the 52 bytes before
 *       56      8  zeros
 *       64         the tokens, window after window, then zeros up to a multiple of 8 bytes
 *                  the documents, 16 bytes each, window after window
 *                  the windows, 32 bytes each
 *                  with a mask: a bit for each token, padding included (target_mask.h)
 *
 * All numbers are little-endian. A window is its documents one after the other, then padding, which
 * belongs to its last document but has no targets. The target of a token is the next one of the
 * same document in the same window; the last token of a document has none. A document that is cut
 * continues in another window with the token that was its last: so each of its targets counts once.
 * With a mask only those targets count whose token has the bit 1. */
#ifndef PEN_PACKED_FILE_H
#define PEN_PACKED_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PEN_PACKED_MAGIC "PENPACK1"
#define PEN_PACKED_MASKED_MAGIC "PENPACK2"

struct pen_packed_header {
  char magic[8];
  uint32_t token_bytes, longest;
  uint64_t window_count, document_count, token_count, target_count;
  uint32_t index_crc, header_crc;
  uint64_t zeros;
};

struct pen_packed_document {
  uint64_t number; /* of the document among those that were read, from 0 */
  uint32_t first;  /* which of its tokens this begins with: not 0 for a later split */
  uint32_t length; /* tokens, padding not counted */
};

struct pen_packed_window {
  uint64_t first_token, first_document;
  uint32_t length; /* tokens, padding included */
  uint32_t document_count;
  uint32_t target_count; /* those that count */
  uint32_t crc;          /* CRC-32 of its tokens, padding included */
};

_Static_assert(sizeof(struct pen_packed_header) == 64 && sizeof(struct pen_packed_document) == 16 &&
                   sizeof(struct pen_packed_window) == 32,
               "the structs are as the file has them");
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packed files are used as they lie in memory: a little-endian machine is needed"
#endif

/* Whether the file has a mask. */
static inline bool pen_packed_has_mask(const struct pen_packed_header *header) {
  return memcmp(header->magic, PEN_PACKED_MASKED_MAGIC, sizeof header->magic) == 0;
}

/* Where documents, windows and the mask begin in the file. */
static inline uint64_t pen_packed_documents_at(const struct pen_packed_header *header) {
  return (sizeof *header + header->token_count * header->token_bytes + 7) / 8 * 8;
}
static inline uint64_t pen_packed_windows_at(const struct pen_packed_header *header) {
  return pen_packed_documents_at(header) +
         header->document_count * sizeof(struct pen_packed_document);
}
static inline uint64_t pen_packed_mask_at(const struct pen_packed_header *header) {
  return pen_packed_windows_at(header) + header->window_count * sizeof(struct pen_packed_window);
}

/* A packed file in memory. */
struct pen_packed {
  const struct pen_packed_header *header;
  const unsigned char *tokens;
  const struct pen_packed_document *documents;
  const struct pen_packed_window *windows;
  const unsigned char *mask; /* null: every target counts */
};

/* Checks the whole file but its tokens, which are checked window by window as they are read. Fails
 * (65) with what is wrong: a file that was cut short, a byte that has changed, an index that does
 * not add up. `file` stays the caller's. */
void pen_packed_check(struct pen_packed *packed, const char *path, const unsigned char *file,
                      uint64_t file_bytes);

/* Fails (65) unless a window's tokens have the checksum that the index gives. */
void pen_packed_check_window(const struct pen_packed *packed, const char *path, uint64_t window);

#endif
