/* collective_bytes.h: the bytes that the members of a collective send to each other. */
#ifndef PEN_COLLECTIVE_BYTES_H
#define PEN_COLLECTIVE_BYTES_H

#include <stdint.h>

/* What a collective does with a tensor of which each member owns a shard. */
enum pen_collective_form {
  PEN_FORM_ALL_GATHER,     /* each member sends its own shard to every other member */
  PEN_FORM_REDUCE_SCATTER, /* each member sends to every other member that member's shard */
};

/* The ranks that take part. */
struct pen_collective_group {
  uint32_t count;
  const uint32_t *host; /* [count] the host of each; NULL: all on one */
};

/* The bytes that one member sends in one call: to members of its own host, and of others. */
struct pen_sent_bytes {
  uint64_t within, between;
};

/* Sets sent[count]. `shard_bytes` is [count]: the bytes of each member's shard. O(count). */
void pen_collective_sent(enum pen_collective_form form, const struct pen_collective_group *group,
                         const uint64_t *shard_bytes, struct pen_sent_bytes *sent);

/* The time of one call: members send at the same time, each to one member after the other, and a
 * call lasts until the last member has sent. `byte` and `byte_host` are the time of a byte within
 * and between hosts. */
double pen_collective_time(const struct pen_collective_group *group,
                           const struct pen_sent_bytes *sent, double byte, double byte_host);

#endif
