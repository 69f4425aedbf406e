/* bulk_copy.h: copies of large messages into memory that another core reads, in the way that is
 * faster where these two cores are.
 *
 * By the caches: best where both cores have one last-level cache. Past the caches (non-temporal
 * stores): best where they have not, since each line that is written would first come from the
 * other core's cache; up to six times as fast for 1 MiB on Zen 4. A virtual machine does not show
 * which it is, and may change it, so both ways are measured, now and then again. */
#ifndef PEN_BULK_COPY_H
#define PEN_BULK_COPY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum pen_copy_way { PEN_COPY_CACHED, PEN_COPY_STREAMED, PEN_COPY_WAY_COUNT };

/* From this size on a copy takes so long that the time of its stores tells which way is faster. */
enum { PEN_BULK_BYTES_MIN = 64 << 10, PEN_BULK_SIZES = 8 };

/* What a sender knows of the messages of about one size to one receiver; all zero at first. */
struct pen_bulk_copy {
  uint64_t count; /* of copies */
  bool streamed_is_faster;
  double ns_per_byte[PEN_COPY_WAY_COUNT]; /* of the fastest of a way's recent copies */
};

/* The index of about this size, from PEN_BULK_BYTES_MIN bytes on: below PEN_BULK_SIZES. */
uint32_t pen_bulk_size_index(uint64_t bytes);

/* The way of the next copy. */
enum pen_copy_way pen_copy_way_next(const struct pen_bulk_copy *copies);

/* Notes how long the copy took that pen_copy_way_next() was about. */
void pen_copy_way_add(struct pen_bulk_copy *copies, double ns_per_byte);

/* Copies as memcpy() does; stores are ordered before an atomic store with release that follows. */
void pen_copy(void *to, const void *from, uint64_t bytes, enum pen_copy_way way);

/* Chooses the way, copies, and notes the time. From PEN_BULK_BYTES_MIN bytes on. With `there` it
 * copies in parts, an eighth or more at a time, after each of which *there is how many bytes there
 * are; null is allowed. */
enum { PEN_COPY_PART_BYTES_MIN = 32 << 10, PEN_COPY_PARTS_MAX = 8 };
void pen_copy_bulk(struct pen_bulk_copy *copies, void *to, const void *from, uint64_t bytes,
                   _Atomic uint32_t *there);

#endif
