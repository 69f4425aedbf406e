/* packed_file.c: checks packed token files (see packed_file.h). */
#include "runtime/data/packed_file.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/crc32.h"
#include "runtime/data/target_mask.h"

/* The most of anything that a file can hold: sums and products of such numbers fit 64 bits. */
#define COUNT_MAX (UINT64_C(1) << 56)

static void check_header(const struct pen_packed_header *header, const char *path,
                         uint64_t file_bytes) {
  if (file_bytes < sizeof *header) {
    pen_fail(PEN_EXIT_DATA, "%s: %" PRIu64 " bytes: a packed token file has a header of %zu bytes",
             path, file_bytes, sizeof *header);
  }
  uint32_t crc = pen_crc32(0, header, offsetof(struct pen_packed_header, header_crc));
  if (crc != header->header_crc) {
    pen_fail(PEN_EXIT_DATA, "%s: damaged header: checksum %08" PRIx32 ", header says %08" PRIx32,
             path, crc, header->header_crc);
  }
  if (header->zeros != 0) {
    pen_fail(PEN_EXIT_DATA, "%s: damaged header: its last 8 bytes are not zeros", path);
  }
  if (header->token_bytes != 2 && header->token_bytes != 4) {
    pen_fail(PEN_EXIT_DATA, "%s: tokens of %" PRIu32 " bytes: 2 or 4 are allowed", path,
             header->token_bytes);
  }
  if (header->window_count > COUNT_MAX / sizeof(struct pen_packed_window) ||
      header->token_count > COUNT_MAX ||
      header->document_count > COUNT_MAX / sizeof(struct pen_packed_document)) {
    pen_fail(PEN_EXIT_DATA, "%s: its header counts more than a file can hold", path);
  }
  uint64_t expected =
      pen_packed_mask_at(header) +
      (pen_packed_has_mask(header) ? pen_target_mask_bytes(header->token_count) : 0);
  if (file_bytes != expected) {
    pen_fail(PEN_EXIT_DATA,
             "%s: %" PRIu64 " bytes: its header counts %" PRIu64 " tokens, %" PRIu64
             " documents and %" PRIu64 " windows, which take %" PRIu64 " bytes",
             path, file_bytes, header->token_count, header->document_count, header->window_count,
             expected);
  }
}

/* One window against what came before it. */
static void check_window(const struct pen_packed *packed, const char *path, uint64_t w,
                         uint64_t token, uint64_t document) {
  const struct pen_packed_window *window = &packed->windows[w];
  if (window->first_token != token || window->first_document != document) {
    pen_fail(PEN_EXIT_DATA,
             "%s: the index is wrong: window %" PRIu64 " begins with token %" PRIu64
             " and document %" PRIu64 ", but those before it end at %" PRIu64 " and %" PRIu64,
             path, w, window->first_token, window->first_document, token, document);
  }
  if (window->length > packed->header->longest ||
      window->length > packed->header->token_count - token || window->document_count == 0 ||
      window->document_count > packed->header->document_count - document) {
    pen_fail(PEN_EXIT_DATA,
             "%s: the index is wrong: window %" PRIu64 " has %" PRIu32 " tokens and %" PRIu32
             " documents",
             path, w, window->length, window->document_count);
  }
  uint64_t length = 0, targets = 0;
  for (uint32_t d = 0; d < window->document_count; d++) {
    uint32_t own = packed->documents[document + d].length;
    if (own == 0) {
      pen_fail(PEN_EXIT_DATA,
               "%s: the index is wrong: document %" PRIu32 " of window %" PRIu64 " has no tokens",
               path, d, w);
    }
    const bool inside = length + own <= window->length; /* the mask has no bits past the tokens */
    targets += pen_target_mask_count(inside ? packed->mask : NULL, token + length + 1, own - 1);
    length += own;
  }
  if (length > window->length || targets != window->target_count) {
    pen_fail(PEN_EXIT_DATA,
             "%s: the index is wrong: window %" PRIu64 " has %" PRIu32 " tokens and counts %" PRIu32
             " targets, but its documents have %" PRIu64 " tokens and %" PRIu64 " targets",
             path, w, window->length, window->target_count, length, targets);
  }
}

static void check_windows(const struct pen_packed *packed, const char *path) {
  const struct pen_packed_header *header = packed->header;
  uint64_t token = 0, document = 0, targets = 0;
  uint32_t longest = 0;
  for (uint64_t w = 0; w < header->window_count; w++) {
    check_window(packed, path, w, token, document);
    const struct pen_packed_window *window = &packed->windows[w];
    token += window->length;
    document += window->document_count;
    targets += window->target_count;
    longest = window->length > longest ? window->length : longest;
  }
  if (token != header->token_count || document != header->document_count ||
      targets != header->target_count || longest != header->longest) {
    pen_fail(PEN_EXIT_DATA,
             "%s: the index is wrong: its windows have %" PRIu64 " tokens (at most %" PRIu32
             "), %" PRIu64 " documents and %" PRIu64 " targets, the header counts %" PRIu64
             " (at most %" PRIu32 "), %" PRIu64 " and %" PRIu64,
             path, token, longest, document, targets, header->token_count, header->longest,
             header->document_count, header->target_count);
  }
}

void pen_packed_check(struct pen_packed *packed, const char *path, const unsigned char *file,
                      uint64_t file_bytes) {
  const struct pen_packed_header *header = (const void *)file;
  check_header(header, path, file_bytes);
  *packed = (struct pen_packed){
      .header = header,
      .tokens = file + sizeof *header,
      .documents = (const void *)(file + pen_packed_documents_at(header)),
      .windows = (const void *)(file + pen_packed_windows_at(header)),
      .mask = pen_packed_has_mask(header) ? file + pen_packed_mask_at(header) : NULL,
  };
  uint64_t past_tokens = sizeof *header + header->token_count * header->token_bytes;
  uint32_t crc = pen_crc32(0, file + past_tokens, file_bytes - past_tokens);
  if (crc != header->index_crc) {
    pen_fail(PEN_EXIT_DATA, "%s: damaged index: checksum %08" PRIx32 ", header says %08" PRIx32,
             path, crc, header->index_crc);
  }
  check_windows(packed, path);
}

void pen_packed_check_window(const struct pen_packed *packed, const char *path, uint64_t w) {
  const struct pen_packed_window *window = &packed->windows[w];
  uint32_t width = packed->header->token_bytes;
  uint32_t crc =
      pen_crc32(0, packed->tokens + window->first_token * width, (size_t)window->length * width);
  if (crc != window->crc) {
    pen_fail(PEN_EXIT_DATA,
             "%s: damaged window %" PRIu64 ": checksum %08" PRIx32 ", index says %08" PRIx32, path,
             w, crc, window->crc);
  }
}
