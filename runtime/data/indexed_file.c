/* indexed_file.c: reads the index of Megatron-LM's token files (see indexed_file.h). */
#include "runtime/data/indexed_file.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"

#define MAGIC "MMIDIDX\0" /* and the zero that ends it */
enum { VERSION_AT = 9, TYPE_AT = 17, SEQUENCES_AT = 18, DOCUMENTS_AT = 26, HEADER_BYTES = 34 };

static const struct number_type {
  const char *name;
  uint32_t bytes; /* 0: no tokens */
} types[] = {
    [1] = {"uint8", 0}, [2] = {"int8", 0},    [3] = {"int16", 0},   [4] = {"int32", 4},
    [5] = {"int64", 8}, [6] = {"float64", 0}, [7] = {"float32", 0}, [8] = {"uint16", 2},
};

static uint64_t u64_at(const unsigned char *from) {
  uint64_t number;
  memcpy(&number, from, sizeof number);
  return number;
}

static int32_t length_of(const struct pen_indexed *indexed, uint64_t sequence) {
  int32_t length;
  memcpy(&length, indexed->index + HEADER_BYTES + sequence * sizeof length, sizeof length);
  return length;
}

/* The byte at which a sequence begins; of sequence S, at which the file ends. */
static uint64_t byte_of(const struct pen_indexed *indexed, uint64_t sequence) {
  const uint64_t count = indexed->sequence_count;
  return sequence == count ? indexed->token_count * indexed->number_bytes
                           : u64_at(indexed->index + HEADER_BYTES + 4 * count + 8 * sequence);
}

static uint64_t first_sequence(const struct pen_indexed *indexed, uint64_t document) {
  return u64_at(indexed->index + HEADER_BYTES + 12 * indexed->sequence_count + 8 * document);
}

/* The first token of a document; of the one past the last, the tokens of all. */
static uint64_t first_token(const struct pen_indexed *indexed, uint64_t document) {
  return byte_of(indexed, first_sequence(indexed, document)) / indexed->number_bytes;
}

char *pen_indexed_find(const char *path) {
  static const char data_end[] = ".bin", index_end[] = ".idx";
  const size_t length = strlen(path), stem = length - (sizeof data_end - 1);
  if (length < sizeof data_end || strcmp(path + stem, data_end) != 0) {
    return NULL;
  }
  char *index_path = pen_allocate(length + 1, 1, "a name");
  memcpy(index_path, path, stem);
  memcpy(index_path + stem, index_end, sizeof index_end);
  if (access(index_path, F_OK) != 0) {
    free(index_path);
    return NULL;
  }
  return index_path;
}

/* The files whose index is read, for messages. */
struct names {
  const char *path, *index_path;
};

#define FAIL(names, format, ...)                                      \
  pen_fail(PEN_EXIT_DATA, "%s: its index %s: " format, (names)->path, \
           (names)->index_path __VA_OPT__(, ) __VA_ARGS__)

/* Sets type and counts; the index has as many bytes as they take. */
static void read_header(struct pen_indexed *indexed, const struct names *names) {
  const unsigned char *index = indexed->index;
  const uint64_t bytes = indexed->index_bytes;
  if (bytes < HEADER_BYTES) {
    FAIL(names, "%" PRIu64 " bytes: it is cut short: an index of Megatron-LM has a header of %d",
         bytes, HEADER_BYTES);
  }
  if (memcmp(index, MAGIC, sizeof MAGIC) != 0) {
    FAIL(names, "no index of Megatron-LM, as its name says; give one of them another name");
  }
  if (u64_at(index + VERSION_AT) != 1) {
    FAIL(names, "an index of Megatron-LM of version %" PRIu64 "; version 1 is known",
         u64_at(index + VERSION_AT));
  }
  const unsigned code = index[TYPE_AT];
  const struct number_type *type =
      code < sizeof types / sizeof *types && types[code].name != NULL ? &types[code] : NULL;
  if (type == NULL || type->bytes == 0) {
    FAIL(names, "numbers of type %s (code %u): token ids are uint16 (8), int32 (4) or int64 (5)",
         type == NULL ? "unknown" : type->name, code);
  }
  const uint64_t sequences = u64_at(index + SEQUENCES_AT), entries = u64_at(index + DOCUMENTS_AT);
  const bool too_many = sequences > bytes / 12 || entries > bytes / 8;
  const uint64_t expected = too_many ? 0 : HEADER_BYTES + 12 * sequences + 8 * entries;
  if (!too_many && sequences > 0 && bytes == expected + sequences) {
    FAIL(names, "its sequences have modes, as those of several modalities: text alone is read");
  }
  if (too_many || bytes != expected || entries == 0) {
    FAIL(names,
         "%" PRIu64 " bytes do not hold the %" PRIu64 " sequences and %" PRIu64
         " entries of documents, at least 1, that its header counts",
         bytes, sequences, entries);
  }
  indexed->number_bytes = type->bytes;
  indexed->sequence_count = sequences;
  indexed->document_count = entries - 1;
}

/* The sequences follow each other from the first byte of the file to its last. */
static void check_sequences(struct pen_indexed *indexed, const struct names *names,
                            uint64_t file_bytes) {
  uint64_t at = 0;
  for (uint64_t s = 0; s < indexed->sequence_count; s++) {
    const int32_t length = length_of(indexed, s);
    if (byte_of(indexed, s) != at || length < 0) {
      FAIL(names,
           "sequence %" PRIu64 " has %" PRId32 " numbers from byte %" PRIu64
           " on, but those before it end at byte %" PRIu64,
           s, length, byte_of(indexed, s), at);
    }
    at += (uint64_t)length * indexed->number_bytes;
  }
  if (at != file_bytes) {
    FAIL(names,
         "its sequences take %" PRIu64 " bytes as %" PRIu32
         " bytes a number, the file has %" PRIu64,
         at, indexed->number_bytes, file_bytes);
  }
  indexed->token_count = at / indexed->number_bytes;
}

/* The first sequences of the documents rise from 0 to the number of sequences. */
static void check_documents(const struct pen_indexed *indexed, const struct names *names) {
  const uint64_t last = indexed->document_count;
  uint64_t before = 0;
  for (uint64_t d = 0; d <= last; d++) {
    const uint64_t first = first_sequence(indexed, d);
    if ((d == 0 && first != 0) || first < before || first > indexed->sequence_count ||
        (d == last && first != indexed->sequence_count)) {
      FAIL(names,
           "entry %" PRIu64 " of its documents is sequence %" PRIu64
           ": they rise from 0 to the number of sequences, %" PRIu64,
           d, first, indexed->sequence_count);
    }
    before = first;
  }
}

struct pen_indexed pen_indexed_read(const char *path, uint64_t file_bytes, const char *index_path,
                                    const unsigned char *index, uint64_t index_bytes) {
  struct pen_indexed indexed = {.index = index, .index_bytes = index_bytes};
  const struct names names = {path, index_path};
  read_header(&indexed, &names);
  check_sequences(&indexed, &names, file_bytes);
  check_documents(&indexed, &names);
  return indexed;
}

/* The last document that begins at a token or before it. */
static uint64_t document_at(const struct pen_indexed *indexed, uint64_t token) {
  uint64_t low = 0, past = indexed->document_count;
  while (past - low > 1) {
    const uint64_t middle = low + (past - low) / 2;
    if (first_token(indexed, middle) <= token) {
      low = middle;
    } else {
      past = middle;
    }
  }
  return low;
}

void pen_indexed_starts(const struct pen_indexed *indexed, uint64_t first, uint64_t count,
                        int32_t *start) {
  uint64_t document = document_at(indexed, first), from = 0;
  for (uint64_t t = 0; t < count; t++) {
    while (document + 1 < indexed->document_count &&
           first_token(indexed, document + 1) <= first + t) {
      document++;
      from = t;
    }
    start[t] = (int32_t)from;
  }
}
