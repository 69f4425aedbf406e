/* fabric.h: one-sided writes between the ranks of a run, over any network that libfabric (OFI)
 * reaches: a write puts bytes into the region that another rank has registered, and raises a
 * counter there, whose index travels with the write (fi_writedata, remote CQ data).
 *
 * A rank has one fabric. It is used by one thread, which makes all progress: writes go out and come
 * in while the rank polls or waits; between polls the kernel or the adapter moves what is queued
 * there. After pen_fabric_connect() nothing allocates.
 *
 * Where the network carries 64 bits with a write, the time when it began travels with it, too
 * (runtime/comm/step_timing.h). */
#ifndef PEN_FABRIC_H
#define PEN_FABRIC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/comm/step_timing.h"

struct pen_fabric;

/* How other ranks reach this one: what libfabric calls its address, key and base. */
enum { PEN_FABRIC_NAME_BYTES = 64 };
struct pen_fabric_address {
  uint64_t key, base;
  uint64_t name_bytes;
  unsigned char name[PEN_FABRIC_NAME_BYTES];
};

/* A kind of write that is made once a step, kept by the caller until it is complete. Zero at first.
 */
struct pen_fabric_write {
  void *context[8];            /* libfabric's */
  uint32_t started, completed; /* times; the source may be overwritten when they are equal */
  uint32_t peer;               /* of the last */
};

struct pen_fabric_config {
  const char *host;     /* name or address of this host: where the others reach this rank */
  unsigned char *arena; /* writes read from here */
  size_t arena_bytes;
  size_t region_bytes;           /* of the arena, from its start: the region that others write to */
  uint32_t counter_count;        /* counters that others raise */
  uint32_t peer_count, self;     /* ranks of the run, and which one this is */
  const _Atomic uint32_t *abort; /* not 0: the run was aborted */
  uint64_t spin_ns;              /* how long a wait polls before it sleeps */
  _Atomic uint32_t *waits_for;   /* rank + 1 while a call blocks because of that rank, else 0 */
  /* A write to this rank arrived while it waited: what its counter is, and how long it took by both
   * ranks' clocks, in PEN_DELAY_UNIT_NS. May be null. */
  void (*arrived)(void *context, uint32_t counter, uint32_t delay);
  /* A call has blocked for so long. May be null. */
  void (*waited)(void *context, uint64_t waited_ns);
  void *context;
};

/* Opens an endpoint and registers the region. Fails (71) where libfabric finds no network that can
 * do this. Allocates. */
struct pen_fabric *pen_fabric_open(const struct pen_fabric_config *config,
                                   struct pen_fabric_address *address);
const char *pen_fabric_provider(const struct pen_fabric *fabric);

/* Exchanges a first write with each peer, so that all connections are made: peers[rank] says which
 * they are, address[rank] how they are reached. All ranks call it at the same time, and agree on
 * who is whose peer. False: the run was aborted. */
bool pen_fabric_connect(struct pen_fabric *fabric, const struct pen_fabric_address *address,
                        const bool *peers);

/* Measures links, before anything is written to the regions that counts: writes several times to
 * each peer with to[rank], nothing and `bytes` bytes of the arena's start to that of the peer's
 * region, to higher ranks and to lower ones alternately, and waits for as many from each with
 * from[rank]. All ranks call it at the same time with the same `bytes`, and agree on who writes to
 * whom. Measures nothing where writes carry no times. False: the run was aborted. Then what was
 * measured of the writes of a peer. */
bool pen_fabric_probe(struct pen_fabric *fabric, const bool *to, const bool *from, uint32_t bytes);
const struct pen_link_probe *pen_fabric_probe_of(const struct pen_fabric *fabric, uint32_t peer);

/* What to write. */
struct pen_fabric_request {
  uint32_t peer;
  const void *from; /* in the arena */
  size_t bytes;     /* may be 0 */
  uint64_t offset;  /* in the peer's region */
  uint32_t counter; /* the peer's, which rises once the bytes are there */
};

/* Starts a write. Blocks while too many are in flight. False: aborted. */
bool pen_fabric_put(struct pen_fabric *fabric, const struct pen_fabric_request *request,
                    struct pen_fabric_write *write);

/* Makes progress without waiting. */
void pen_fabric_poll(struct pen_fabric *fabric);

/* How often the counter was raised since the start, modulo 2^32. */
uint32_t pen_fabric_count(const struct pen_fabric *fabric, uint32_t counter);

/* Wait until the counter has been raised `needed` times, until the write is complete, until all
 * are. False: aborted. `peer`: whom this waits for; UINT32_MAX: several. */
bool pen_fabric_wait(struct pen_fabric *fabric, uint32_t counter, uint32_t needed, uint32_t peer);
bool pen_fabric_wait_written(struct pen_fabric *fabric, const struct pen_fabric_write *write);
bool pen_fabric_wait_all(struct pen_fabric *fabric); /* writes that were started */

#endif
