/* pack.c: packs documents into windows by best fit: a document goes into the fullest open window
 * that has room for it, or into a new one; when too many are open the fullest is closed. Best fit
 * wastes little room in one pass (bound: Johnson et al. 1974; for language models: Ding et al.
 * 2024). Only documents longer than a window are divided. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

#include "runtime/base/crc32.h"
#include "runtime/base/files.h"
#include "runtime/data/packed_file.h"
#include "tools/tokens/tokens.h"

enum { OPEN_WINDOWS = 256, NOT_OPEN = INT32_MAX };

/* A window that can still receive documents. */
struct open_window {
  uint32_t *tokens;
  uint32_t used;
  struct pen_packed_document *documents;
  uint32_t document_count, capacity;
};

static struct {
  struct tokens_sink sink;
  uint32_t window, pad_to, width, padding;
  bool single;
  /* The current document, or its last piece. */
  uint32_t *tokens;
  uint32_t used;
  struct pen_packed_document document;
  uint32_t taken; /* tokens of the document before this piece */
  struct open_window window_pool[OPEN_WINDOWS];
  struct open_window *open[OPEN_WINDOWS]; /* the oldest first, then the free ones */
  int32_t filled[OPEN_WINDOWS]; /* tokens used of each open window, else NOT_OPEN: one array,
                                   because every document searches all */
  uint32_t open_count;
  /* The index at the end of the file. */
  struct pen_packed_document *documents;
  struct pen_packed_window *windows;
  size_t document_capacity, window_capacity;
  struct pen_packed_header header;
  uint64_t full_tokens; /* of documents, padding not counted */
  unsigned char *row;
  struct tokens_mask mask;
} packer;

static void *check_memory(void *memory) {
  if (memory == NULL) {
    tokens_fail(EX_OSERR, "out of memory");
  }
  return memory;
}

/* ---- complete windows ---- */

/* How many targets of a window count: the first token of a document is none. */
static uint32_t count_targets(const struct open_window *window) {
  uint32_t targets = 0, first = 0;
  for (uint32_t d = 0; d < window->document_count; d++) {
    for (uint32_t t = first + 1; t < first + window->documents[d].length; t++) {
      targets += !(window->tokens[t] & TOKENS_IGNORED);
    }
    first += window->documents[d].length;
  }
  return targets;
}

static void add_mask(const struct open_window *window, uint32_t length) {
  static const uint32_t padding = TOKENS_IGNORED;
  tokens_mask_add(&packer.mask, window->tokens, window->used);
  for (uint32_t t = window->used; t < length; t++) {
    tokens_mask_add(&packer.mask, &padding, 1);
  }
}

/* Pads and writes a window, and adds it to the index. */
static void write_window(const struct open_window *window) {
  struct pen_packed_header *header = &packer.header;
  uint64_t padded = ((uint64_t)window->used + packer.pad_to - 1) / packer.pad_to * packer.pad_to;
  uint32_t length = padded < packer.window ? (uint32_t)padded : packer.window;
  for (uint32_t t = 0; t < length; t++) {
    uint32_t token = t < window->used ? window->tokens[t] & ~TOKENS_IGNORED : packer.padding;
    memcpy(packer.row + (size_t)t * packer.width, &token, packer.width);
  }
  tokens_write(&packer.sink, packer.row, (size_t)length * packer.width);
  add_mask(window, length);
  packer.windows = tokens_grow_array(packer.windows, &packer.window_capacity,
                                     header->window_count + 1, sizeof *packer.windows);
  struct pen_packed_window *noted = &packer.windows[header->window_count++];
  *noted =
      (struct pen_packed_window){.first_token = header->token_count,
                                 .first_document = header->document_count,
                                 .length = length,
                                 .document_count = window->document_count,
                                 .target_count = count_targets(window),
                                 .crc = pen_crc32(0, packer.row, (size_t)length * packer.width)};
  packer.documents =
      tokens_grow_array(packer.documents, &packer.document_capacity,
                        header->document_count + window->document_count, sizeof *packer.documents);
  memcpy(packer.documents + header->document_count, window->documents,
         window->document_count * sizeof *window->documents);
  header->document_count += window->document_count;
  header->token_count += length;
  header->target_count += noted->target_count;
  header->longest = length > header->longest ? length : header->longest;
  packer.full_tokens += window->used;
}

/* Writes an open window and moves it to the free ones at the end of the list. */
static void close_window(uint32_t index) {
  struct open_window *window = packer.open[index];
  write_window(window);
  window->used = window->document_count = 0;
  uint32_t after = --packer.open_count - index;
  memmove(&packer.open[index], &packer.open[index + 1], after * sizeof window);
  memmove(&packer.filled[index], &packer.filled[index + 1], after * sizeof *packer.filled);
  packer.open[packer.open_count] = window;
  packer.filled[packer.open_count] = NOT_OPEN;
}

/* ---- open windows ---- */

/* The fullest window with room for `length` tokens, the oldest of these; open_count: none. */
static uint32_t fullest_window(uint32_t length) {
  int32_t room = (int32_t)(packer.window - length), best = 0;
  for (uint32_t i = 0; i < OPEN_WINDOWS; i++) { /* without a branch, so that it vectorises */
    int32_t fits = packer.filled[i] <= room ? packer.filled[i] : 0;
    best = fits > best ? fits : best;
  }
  uint32_t index = 0;
  while (index < packer.open_count && packer.filled[index] != best) {
    index++;
  }
  return index;
}

static uint32_t open_window(void) {
  if (packer.open_count == OPEN_WINDOWS) {
    close_window(fullest_window(0));
  }
  struct open_window *window = packer.open[packer.open_count];
  packer.filled[packer.open_count] = 0;
  if (window->tokens == NULL) {
    window->tokens = check_memory(calloc(packer.window, sizeof *window->tokens));
  }
  return packer.open_count++;
}

/* Adds the current document, or its last piece, to a window. */
static void place_document(void) {
  uint32_t index = packer.single ? packer.open_count : fullest_window(packer.used);
  if (index == packer.open_count) {
    index = open_window();
  }
  struct open_window *window = packer.open[index];
  memcpy(window->tokens + window->used, packer.tokens, packer.used * sizeof *packer.tokens);
  window->used += packer.used;
  packer.filled[index] = (int32_t)window->used;
  size_t capacity = window->capacity;
  window->documents = tokens_grow_array(window->documents, &capacity, window->document_count + 1u,
                                        sizeof *window->documents);
  window->capacity = (uint32_t)capacity;
  packer.document.length = packer.used;
  window->documents[window->document_count++] = packer.document;
  if (packer.single || window->used == packer.window) {
    close_window(index);
  }
}

/* ---- the sink ---- */

static void take_packed(struct tokens_sink *sink, const uint32_t *tokens, size_t count) {
  sink->token_count += count;
  for (; count > 0; count--, tokens++) {
    if (packer.used == packer.window) { /* the next piece begins with the last token of this one */
      place_document();
      packer.document.first += packer.window - 1;
      packer.tokens[0] = packer.tokens[packer.window - 1];
      packer.used = 1;
    }
    packer.tokens[packer.used++] = *tokens;
  }
}

static void end_packed(struct tokens_sink *sink) {
  if (packer.used > 0) {
    place_document();
    sink->document_count++;
  }
  packer.used = 0;
  packer.document = (struct pen_packed_document){.number = packer.document.number + 1};
}

static void finish_packed(struct tokens_sink *sink) {
  static const char zeros[8];
  struct pen_packed_header *header = &packer.header;
  while (packer.open_count > 0) {
    close_window(0);
  }
  header->token_bytes = packer.width;
  uint64_t tokens_end = sizeof *header + header->token_count * packer.width;
  size_t gap = pen_packed_documents_at(header) - tokens_end;
  tokens_write(sink, zeros, gap);
  size_t documents = header->document_count * sizeof *packer.documents,
         windows = header->window_count * sizeof *packer.windows;
  header->index_crc = pen_crc32(pen_crc32(pen_crc32(0, zeros, gap), packer.documents, documents),
                                packer.windows, windows);
  tokens_write(sink, packer.documents, documents);
  tokens_write(sink, packer.windows, windows);
  header->index_crc = tokens_write_mask(sink, &packer.mask, header->index_crc);
  tokens_flush(sink);
  header->header_crc = pen_crc32(0, header, offsetof(struct pen_packed_header, header_crc));
  if (pen_file_write_at(sink->descriptor, header, sizeof *header, 0)) {
    tokens_fail(EX_IOERR, "%s: cannot write: %s", sink->path, strerror(errno));
  }
}

struct tokens_sink *tokens_packer(const struct tokens_settings *settings, int descriptor,
                                  const char *path) {
  packer.sink = (struct tokens_sink){.take_tokens = take_packed,
                                     .end_document = end_packed,
                                     .finish_file = finish_packed,
                                     .descriptor = descriptor,
                                     .path = path};
  packer.window = settings->window;
  packer.pad_to = settings->pad_to;
  packer.width = tokens_width(settings);
  packer.padding = settings->has_end_of_text ? settings->end_of_text : 0;
  packer.single = settings->single;
  for (uint32_t i = 0; i < OPEN_WINDOWS; i++) {
    packer.open[i] = &packer.window_pool[i];
    packer.filled[i] = NOT_OPEN;
  }
  packer.tokens = check_memory(calloc(packer.window, sizeof *packer.tokens));
  packer.row = check_memory(calloc(packer.window, packer.width));
  packer.documents = check_memory(calloc(1, sizeof *packer.documents));
  packer.windows = check_memory(calloc(1, sizeof *packer.windows));
  packer.mask.exists = settings->has_mask;
  memcpy(packer.header.magic, settings->has_mask ? PEN_PACKED_MASKED_MAGIC : PEN_PACKED_MAGIC,
         sizeof packer.header.magic);
  tokens_write(&packer.sink, &packer.header, sizeof packer.header);
  return &packer.sink;
}

void tokens_pack_report(const struct tokens_sink *sink) {
  const struct pen_packed_header *header = &packer.header;
  double full = (double)packer.full_tokens,
         whole = (double)header->window_count * (double)packer.window;
  tokens_say("%" PRIu64 " documents in %" PRIu64 " pieces, %" PRIu64 " windows of up to %" PRIu32
             " tokens, %" PRIu64
             " targets; fill %.2f%% of whole windows, %.2f%% of their padded lengths",
             sink->document_count, header->document_count, header->window_count, packer.window,
             header->target_count, whole > 0 ? 100 * full / whole : 100.0,
             header->token_count > 0 ? 100 * full / (double)header->token_count : 100.0);
}
