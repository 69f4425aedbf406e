/* source.c: opens inputs, and decompresses those that gzip or zstd made, which their first bytes
 * say (RFC 1952, RFC 8878). A file of several members or frames is all of them. */
#define _GNU_SOURCE 1
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>
#ifdef PEN_ZLIB
#include <zlib.h>
#endif
#ifdef PEN_ZSTD
#include <zstd.h>
#endif

#include "tools/tokens/tokens.h"

/* What is read now. */
static struct {
  const char *path;
  int descriptor;
  unsigned char bytes[1 << 17]; /* as they are in the file, from `used` to `count` not read yet */
  size_t used, count;
  bool between; /* of compressed bytes: no member is begun that has not ended */
} source;

/* Reads on, despite signals and short reads of pipes, until there are `least` bytes or no more. */
static void read_on(size_t least) {
  for (ssize_t got = 1; source.count < least && got != 0;) {
    got = read(source.descriptor, source.bytes + source.count, sizeof source.bytes - source.count);
    if (got < 0 && errno != EINTR) {
      tokens_fail(EX_NOINPUT, "%s: cannot read: %s", source.path, strerror(errno));
    }
    source.count += got > 0 ? (size_t)got : 0;
    tokens_count_read(got > 0 ? (size_t)got : 0);
  }
}

/* ---- compressions ---- */

static size_t copy_plain(void *to, size_t bytes) {
  const size_t left = source.count - source.used, some = left < bytes ? left : bytes;
  memcpy(to, source.bytes + source.used, some);
  source.used += some;
  return some;
}

#if defined PEN_ZLIB || defined PEN_ZSTD
static _Noreturn void fail_damaged(const char *format, const char *why) {
  tokens_fail(EX_DATAERR, "%s: damaged %s data: %s", source.path, format, why);
}
#endif

#ifdef PEN_ZLIB
static z_stream gzip_stream;

static void begin_gzip(void) {
  inflateEnd(&gzip_stream); /* of another input */
  gzip_stream = (z_stream){.zalloc = Z_NULL};
  if (inflateInit2(&gzip_stream, 16 + MAX_WBITS) != Z_OK) {
    tokens_fail(EX_OSERR, "out of memory");
  }
}

static size_t read_gzip(void *to, size_t bytes) {
  const unsigned some = bytes < INT32_MAX ? (unsigned)bytes : INT32_MAX,
                 left = (unsigned)(source.count - source.used);
  if (source.between && left > 0) {
    inflateReset(&gzip_stream);
    source.between = false;
  }
  gzip_stream.next_in = source.bytes + source.used;
  gzip_stream.avail_in = left;
  gzip_stream.next_out = to;
  gzip_stream.avail_out = some;
  const int status = source.between ? Z_BUF_ERROR : inflate(&gzip_stream, Z_NO_FLUSH);
  source.used += left - gzip_stream.avail_in;
  source.between = source.between || status == Z_STREAM_END;
  if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR) {
    fail_damaged("gzip", gzip_stream.msg == NULL ? zError(status) : gzip_stream.msg);
  }
  return some - gzip_stream.avail_out;
}
#else
#define begin_gzip NULL
#define read_gzip NULL
#endif

#ifdef PEN_ZSTD
static ZSTD_DCtx *zstd_context;

/* Windows may be as large as `zstd --long=31` makes them. */
static void begin_zstd(void) {
  ZSTD_freeDCtx(zstd_context);
  zstd_context = ZSTD_createDCtx();
  if (zstd_context == NULL ||
      ZSTD_isError(ZSTD_DCtx_setParameter(zstd_context, ZSTD_d_windowLogMax,
                                          ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound))) {
    tokens_fail(EX_OSERR, "out of memory");
  }
}

static size_t read_zstd(void *to, size_t bytes) {
  ZSTD_inBuffer in = {source.bytes, source.count, source.used};
  ZSTD_outBuffer out = {to, bytes, 0};
  const size_t status = ZSTD_decompressStream(zstd_context, &out, &in);
  if (ZSTD_isError(status)) {
    fail_damaged("zstd", ZSTD_getErrorName(status));
  }
  if (in.pos > source.used || out.pos > 0) {
    source.between = status == 0;
  }
  source.used = in.pos;
  return out.pos;
}
#else
#define begin_zstd NULL
#define read_zstd NULL
#endif

/* How inputs that begin so are read. */
static const struct compression {
  const char *start, *name, *library;
  void (*begin)(void);                    /* null: built without the library */
  size_t (*read)(void *to, size_t bytes); /* of what was read; 0: more is needed */
} compressions[] = {
    {"\x1f\x8b\x08", "gzip", "zlib", begin_gzip, read_gzip},
    {"\x28\xb5\x2f\xfd", "zstd", "libzstd", begin_zstd, read_zstd},
    {"\x50\x2a\x4d\x18", "zstd", "libzstd", begin_zstd, read_zstd}, /* a frame to skip, of pzstd */
};
static const struct compression *compression; /* of the source; null: as it is */

static const struct compression *compression_of(void) {
  for (size_t f = 0; f < sizeof compressions / sizeof *compressions; f++) {
    const size_t bytes = strlen(compressions[f].start);
    if (source.count >= bytes && memcmp(source.bytes, compressions[f].start, bytes) == 0) {
      return &compressions[f];
    }
  }
  return NULL;
}

/* ---- streams ---- */

static ssize_t read_source(void *unused, char *to, size_t bytes) {
  (void)unused;
  for (;;) {
    if (source.used == source.count) {
      source.used = source.count = 0;
      read_on(1);
    }
    const bool ended = source.count == 0;
    const size_t some = (compression == NULL ? copy_plain : compression->read)(to, bytes);
    if (some > 0 || (ended && (compression == NULL || source.between))) {
      return (ssize_t)some;
    }
    if (ended) {
      tokens_fail(EX_DATAERR, "%s: %s data that are cut short", source.path, compression->name);
    }
  }
}

FILE *tokens_open(const char *path) {
  source.path = path;
  source.descriptor = strcmp(path, "-") == 0 ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  source.used = source.count = 0;
  source.between = true;
  if (source.descriptor < 0) {
    tokens_fail(EX_NOINPUT, "%s: %s", path, strerror(errno));
  }
  read_on(PEN_FILE_KIND_BYTES);
  compression = compression_of();
  if (compression != NULL && compression->begin == NULL) {
    tokens_fail(EX_DATAERR,
                "%s: compressed by %s: this penstock-tokens was built without %s; decompress it "
                "first: %s -dc",
                path, compression->name, compression->library, compression->name);
  }
  if (compression != NULL) {
    compression->begin();
  }
  FILE *stream = fopencookie(NULL, "r", (cookie_io_functions_t){.read = read_source});
  if (stream == NULL) {
    tokens_fail(EX_OSERR, "out of memory");
  }
  setvbuf(stream, NULL, _IOFBF, sizeof source.bytes);
  return stream;
}

void tokens_close(FILE *stream) {
  fclose(stream);
  if (source.descriptor != STDIN_FILENO) {
    close(source.descriptor);
  }
}
