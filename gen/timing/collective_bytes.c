/* collective_bytes.c: the bytes that the members of a collective send to each other.
 *
 * Members send shards directly to each other (runtime/exec/replicas.c), so with equal shards of b
 * bytes each of n members sends (n-1) b, as in any bandwidth-optimal all-gather or reduce-scatter
 * (Chan et al. 2007, Collective communication: theory, practice, and experience). Shards are cut at
 * blocks and need not be equal: the bytes here are those that are really sent. */
#include "gen/timing/collective_bytes.h"

#include <math.h>

#include "gen/base/arena.h"

/* The members on one host, and the bytes of their shards. */
struct host_sum {
  uint64_t bytes;
  uint32_t count;
};

static uint32_t host_of(const struct pen_collective_group *group, uint32_t member) {
  return group->host ? group->host[member] : 0;
}

void pen_collective_sent(enum pen_collective_form form, const struct pen_collective_group *group,
                         const uint64_t *shard_bytes, struct pen_sent_bytes *sent) {
  uint32_t hosts = 1;
  uint64_t all = 0;
  for (uint32_t m = 0; m < group->count; m++)
    if (host_of(group, m) >= hosts) hosts = host_of(group, m) + 1;
  struct host_sum *sum = pen_new(hosts, sizeof *sum);
  for (uint32_t m = 0; m < group->count; m++) {
    all += shard_bytes[m];
    sum[host_of(group, m)].bytes += shard_bytes[m];
    sum[host_of(group, m)].count++;
  }
  for (uint32_t m = 0; m < group->count; m++) {
    const struct host_sum *own = &sum[host_of(group, m)];
    bool gathers = form == PEN_FORM_ALL_GATHER;
    sent[m] = (struct pen_sent_bytes){
        gathers ? shard_bytes[m] * (own->count - 1) : own->bytes - shard_bytes[m],
        gathers ? shard_bytes[m] * (group->count - own->count) : all - own->bytes};
  }
  pen_free(sum);
}

double pen_collective_time(const struct pen_collective_group *group,
                           const struct pen_sent_bytes *sent, double byte, double byte_host) {
  double longest = 0;
  for (uint32_t m = 0; m < group->count; m++)
    longest = fmax(longest, (double)sent[m].within * byte + (double)sent[m].between * byte_host);
  return longest;
}
