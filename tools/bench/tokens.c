/* bench_tokens.c: makes the token file that a bench trains on (see bench.h). Text as bytes has 256
 * values; a vocabulary of thousands is filled by taking two bytes a token, which keeps what makes
 * text learnable: some tokens are frequent, and most follow from those before them. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

enum { HEADER_INTS = 256, MAGIC = 20240520, FORMAT_VERSION = 1, TEXT_BYTES_MAX = 1 << 22 };

static size_t gather(unsigned char *bytes, char **texts, int text_count) {
  size_t used = 0;
  for (int i = 0; i < text_count; i++) {
    FILE *file = fopen(texts[i], "re");
    if (file == NULL) {
      bench_fail("%s: %s", texts[i], strerror(errno));
    }
    used += fread(bytes + used, 1, TEXT_BYTES_MAX - used, file);
    fclose(file);
  }
  if (used < 2) {
    bench_fail("no text to make tokens of");
  }
  return used;
}

/* Multiplicative hashing (Knuth, volume 3): the upper half of the product depends on both bytes. */
static uint16_t token_of(const unsigned char pair[2], uint32_t vocab) {
  uint32_t product = (uint32_t)(pair[0] << 8 | pair[1]) * 2654435769u;
  return (uint16_t)((product >> 16) % vocab);
}

void bench_tokens(const char *path, uint64_t count, uint32_t vocab, char **texts, int text_count) {
  unsigned char *bytes = malloc(TEXT_BYTES_MAX);
  FILE *file = fopen(path, "we");
  if (file == NULL || bytes == NULL) {
    bench_fail("cannot create %s: %s", path, strerror(errno));
  }
  size_t pairs = gather(bytes, texts, text_count) / 2;
  int32_t header[HEADER_INTS] = {MAGIC, FORMAT_VERSION, (int32_t)count};
  fwrite(header, sizeof *header, HEADER_INTS, file);
  for (uint64_t i = 0; i < count; i++) {
    uint16_t token = token_of(bytes + 2 * (i % pairs), vocab);
    fwrite(&token, sizeof token, 1, file);
  }
  free(bytes);
  if (ferror(file) | fclose(file)) {
    bench_fail("cannot write %s: %s", path, strerror(errno));
  }
}
