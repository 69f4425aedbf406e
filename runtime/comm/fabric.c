/* fabric.c: one-sided writes by libfabric (see fabric.h).
 *
 * The endpoint is of the kind "reliable, datagram": connections are libfabric's. One completion
 * queue holds the ends of local writes (their context is the write's) and the arrivals of others'
 * (their data is the counter's index, and in the upper half the time when they began). Nothing
 * depends on the order of completions. */
#include "runtime/comm/fabric.h"

#include <poll.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/base/futex_counter.h"
#include "runtime/comm/probe_kinds.h"
#include "runtime/comm/step_timing.h"

enum {
  API_VERSION = FI_VERSION(1, 11),
  COMPLETIONS = 64,      /* read from the queue at a time */
  POLLS_PER_CLOCK = 16,  /* polls between two reads of the clock */
  SLEEP_MS = 5,          /* a sleeping rank looks this often whether the run was aborted */
  REGION_KEY = 1,        /* where the application chooses keys */
  LOST_S = 3,            /* for the watchdog to say which rank was lost */
  PROBE_ROUNDS = 20,     /* the first ones are slow */
  PROBE_REST_ROUNDS = 5, /* after so many a rank sleeps: another process may have had its core */
  PROBE_REST_MS = 10,
};

/* Counters that no message has: the one that a first write raises, and those of a peer's probes. */
static uint32_t hello_counter(const struct pen_fabric_config *config) {
  return config->counter_count;
}

static uint32_t probe_counter(const struct pen_fabric_config *config, uint32_t peer) {
  return config->counter_count + 1 + peer;
}

static uint32_t all_counters(const struct pen_fabric_config *config) {
  return probe_counter(config, config->peer_count);
}

struct pen_fabric {
  struct pen_fabric_config config;
  struct fi_info *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *endpoint;
  struct fid_mr *region, *arena;
  void *arena_descriptor;
  int descriptor; /* readable when the queue is not empty */
  bool needs_local_key, uses_virtual_addresses;
  bool has_times;   /* the time when a write began travels with it */
  bool waiting;     /* an arrival is seen when it happens */
  fi_addr_t *peers; /* [peer_count] */
  uint64_t *keys, *bases;
  uint32_t *counters;            /* [all_counters()] */
  struct pen_fabric_write hello; /* and the probes' */
  uint32_t completed;            /* writes of all kinds */
  uint32_t *in_flight;           /* [peer_count]: writes that are not complete */
  struct pen_link_probe *probes; /* [peer_count] */
  char failure[200];             /* of a completion; empty: none */
};

_Static_assert(sizeof(((struct pen_fabric_write *)0)->context) >= sizeof(struct fi_context2),
               "a write's context");

/* ---- opening ---- */

static void check_call(long result, const char *call, const char *host) {
  if (result < 0) {
    pen_fail(PEN_EXIT_SYSTEM, "libfabric, on host %s: %s: %s", host, call,
             fi_strerror((int)-result));
  }
}

/* The first network that can do it, in libfabric's order, which FI_PROVIDER changes. */
static struct fi_info *find_network(const char *host) {
  struct fi_info *hints = fi_allocinfo(), *found = NULL;
  pen_check(hints != NULL, "no memory for libfabric");
  hints->caps = FI_RMA | FI_WRITE | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  hints->domain_attr->cq_data_size = sizeof(uint32_t);
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->control_progress = hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
  hints->domain_attr->caps = FI_REMOTE_COMM;
  const int result = fi_getinfo(API_VERSION, host, NULL, FI_SOURCE, hints, &found);
  fi_freeinfo(hints);
  check_call(result, "finding a network with remote writes", host);
  return found;
}

static void open_endpoint(struct pen_fabric *fabric) {
  const char *host = fabric->config.host;
  struct fi_cq_attr cq = {
      .size = 2u * (fabric->config.counter_count + fabric->config.peer_count) + COMPLETIONS,
      .format = FI_CQ_FORMAT_DATA,
      .wait_obj = FI_WAIT_FD};
  struct fi_av_attr av = {.type = FI_AV_TABLE, .count = fabric->config.peer_count};
  check_call(fi_fabric(fabric->info->fabric_attr, &fabric->fabric, NULL), "fi_fabric", host);
  check_call(fi_domain(fabric->fabric, fabric->info, &fabric->domain, NULL), "fi_domain", host);
  check_call(fi_av_open(fabric->domain, &av, &fabric->av, NULL), "fi_av_open", host);
  check_call(fi_cq_open(fabric->domain, &cq, &fabric->cq, NULL), "fi_cq_open", host);
  check_call(fi_endpoint(fabric->domain, fabric->info, &fabric->endpoint, NULL), "fi_endpoint",
             host);
  check_call(fi_ep_bind(fabric->endpoint, &fabric->av->fid, 0), "fi_ep_bind", host);
  check_call(fi_ep_bind(fabric->endpoint, &fabric->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind",
             host);
  check_call(fi_enable(fabric->endpoint), "fi_enable", host);
  check_call(fi_control(&fabric->cq->fid, FI_GETWAIT, &fabric->descriptor), "FI_GETWAIT", host);
}

static void register_memory(struct pen_fabric *fabric) {
  const struct pen_fabric_config *config = &fabric->config;
  const int mode = fabric->info->domain_attr->mr_mode;
  fabric->uses_virtual_addresses = (mode & FI_MR_VIRT_ADDR) != 0;
  check_call(fi_mr_reg(fabric->domain, config->arena, config->region_bytes, FI_REMOTE_WRITE, 0,
                       REGION_KEY, 0, &fabric->region, NULL),
             "registering the receive region", config->host);
  if ((mode & FI_MR_LOCAL) != 0) {
    check_call(fi_mr_reg(fabric->domain, config->arena, config->arena_bytes, FI_WRITE, 0,
                         REGION_KEY + 1, 0, &fabric->arena, NULL),
               "registering the arena", config->host);
    fabric->arena_descriptor = fi_mr_desc(fabric->arena);
  }
}

struct pen_fabric *pen_fabric_open(const struct pen_fabric_config *config,
                                   struct pen_fabric_address *address) {
  struct pen_fabric *fabric = pen_allocate(1, sizeof *fabric, "libfabric");
  fabric->config = *config;
  fabric->peers = calloc(config->peer_count, sizeof *fabric->peers);
  fabric->keys = calloc(config->peer_count, sizeof *fabric->keys);
  fabric->bases = calloc(config->peer_count, sizeof *fabric->bases);
  fabric->counters = calloc(all_counters(config), sizeof *fabric->counters);
  fabric->in_flight = calloc(config->peer_count, sizeof *fabric->in_flight);
  fabric->probes = calloc(config->peer_count, sizeof *fabric->probes);
  pen_check(fabric->peers != NULL && fabric->keys != NULL && fabric->bases != NULL &&
                fabric->counters != NULL && fabric->in_flight != NULL && fabric->probes != NULL,
            "no memory for the connections to %u ranks", config->peer_count);
  fabric->info = find_network(config->host);
  fabric->has_times = fabric->info->domain_attr->cq_data_size >= sizeof(uint64_t);
  open_endpoint(fabric);
  register_memory(fabric);
  size_t name_bytes = sizeof address->name;
  *address = (struct pen_fabric_address){
      .key = fi_mr_key(fabric->region),
      .base = fabric->uses_virtual_addresses ? (uint64_t)(uintptr_t)config->arena : 0,
  };
  check_call(fi_getname(&fabric->endpoint->fid, address->name, &name_bytes), "fi_getname",
             config->host);
  address->name_bytes = name_bytes;
  return fabric;
}

const char *pen_fabric_provider(const struct pen_fabric *fabric) {
  return fabric->info->fabric_attr->prov_name;
}

/* ---- progress ---- */

static void keep_failure(struct pen_fabric *fabric) {
  struct fi_cq_err_entry entry = {0};
  if (fi_cq_readerr(fabric->cq, &entry, 0) == 1 && fabric->failure[0] == '\0') {
    char text[128];
    snprintf(fabric->failure, sizeof fabric->failure, "%s: %s", fi_strerror(entry.err),
             fi_cq_strerror(fabric->cq, entry.prov_errno, entry.err_data, text, sizeof text));
  }
}

static uint32_t delay_since(uint64_t data) {
  return pen_delay_clock(pen_now_ns()) - (uint32_t)(data >> 32);
}

/* After the probe of a peer has been counted. */
static void add_probe(struct pen_fabric *fabric, uint32_t peer, uint32_t delay) {
  const uint32_t before = fabric->counters[probe_counter(&fabric->config, peer)] - 1;
  const enum probe_kind kind = before % PROBE_KINDS;
  const bool has_bytes = probe_has_bytes(kind, peer, fabric->config.self);
  struct pen_link_probe *probe = &fabric->probes[peer];
  uint32_t *least = has_bytes ? &probe->full : &probe->empty;
  if ((kind == PROBE_EMPTY || has_bytes) &&
      (before < PROBE_KINDS || (int32_t)(delay - *least) < 0)) {
    *least = delay;
  }
}

static void complete(struct pen_fabric *fabric, const struct fi_cq_data_entry *entry) {
  if ((entry->flags & FI_REMOTE_CQ_DATA) != 0) {
    const uint32_t counter = (uint32_t)entry->data;
    pen_assert(counter < all_counters(&fabric->config));
    fabric->counters[counter]++;
    if (counter > hello_counter(&fabric->config)) {
      add_probe(fabric, counter - probe_counter(&fabric->config, 0), delay_since(entry->data));
    } else if (fabric->waiting && fabric->has_times && fabric->config.arrived != NULL) {
      fabric->config.arrived(fabric->config.context, counter, delay_since(entry->data));
    }
  } else {
    struct pen_fabric_write *write = entry->op_context;
    write->completed++;
    fabric->in_flight[write->peer]--;
    fabric->completed++;
  }
}

void pen_fabric_poll(struct pen_fabric *fabric) {
  struct fi_cq_data_entry entries[COMPLETIONS];
  ssize_t count;
  do {
    count = fi_cq_read(fabric->cq, entries, COMPLETIONS);
    for (ssize_t i = 0; i < count; i++) {
      complete(fabric, &entries[i]);
    }
  } while (count == COMPLETIONS);
  if (count == -FI_EAVAIL) {
    keep_failure(fabric);
  } else if (count < 0 && count != -FI_EAGAIN && fabric->failure[0] == '\0') {
    snprintf(fabric->failure, sizeof fabric->failure, "fi_cq_read: %s", fi_strerror((int)-count));
  }
}

/* A connection failed: mostly because the rank at its other end was lost, which the watchdog finds
 * and reports. Returns when the run was aborted. */
static void fail_connection(const struct pen_fabric *fabric, uint32_t peer) {
  for (uint64_t end_ns = pen_now_ns() + LOST_S * 1000000000ull; pen_now_ns() < end_ns;) {
    if (atomic_load_explicit(fabric->config.abort, memory_order_relaxed) != 0) {
      return;
    }
    usleep(1000);
  }
  pen_fail(PEN_EXIT_LOST, "the connection to rank %u failed: %s", peer, fabric->failure);
}

/* Whether to continue after a poll that did not bring what is waited for. */
static bool is_aborted(const struct pen_fabric *fabric, uint32_t peer) {
  if (fabric->failure[0] != '\0') {
    fail_connection(fabric, peer);
  }
  return atomic_load_explicit(fabric->config.abort, memory_order_relaxed) != 0;
}

static void sleep_until_completion(struct pen_fabric *fabric) {
  struct fid *queue = &fabric->cq->fid;
  struct pollfd polled = {.fd = fabric->descriptor, .events = POLLIN};
  if (fi_trywait(fabric->fabric, &queue, 1) == FI_SUCCESS) {
    poll(&polled, 1, SLEEP_MS);
  }
}

static void publish_wait(const struct pen_fabric *fabric, uint32_t peer) {
  atomic_store_explicit(fabric->config.waits_for, peer + 1, memory_order_relaxed);
}

static void report_wait(const struct pen_fabric *fabric, uint64_t start_ns) {
  publish_wait(fabric, UINT32_MAX);
  if (fabric->config.waited != NULL) {
    fabric->config.waited(fabric->config.context, pen_now_ns() - start_ns);
  }
}

static bool is_reached(const uint32_t *count, uint32_t needed) {
  return (int32_t)(*count - needed) >= 0;
}

/* Polls, from end_ns on sleeps between the polls. */
static bool poll_until(struct pen_fabric *fabric, const uint32_t *count, uint32_t needed,
                       uint32_t peer, uint64_t end_ns) {
  for (uint32_t polls = 1;; polls++) {
    pen_fabric_poll(fabric);
    if (is_reached(count, needed)) {
      return true;
    }
    if (polls % POLLS_PER_CLOCK == 0) {
      if (is_aborted(fabric, peer)) {
        return false;
      }
      if (pen_now_ns() >= end_ns) {
        sleep_until_completion(fabric);
      }
    }
  }
}

/* Waits until *count is at `needed`, counted modulo 2^32. */
static bool wait_for(struct pen_fabric *fabric, const uint32_t *count, uint32_t needed,
                     uint32_t peer) {
  pen_fabric_poll(fabric);
  if (is_reached(count, needed)) {
    return true;
  }
  const uint64_t start_ns = pen_now_ns();
  fabric->waiting = true;
  publish_wait(fabric, peer);
  const bool reached = poll_until(fabric, count, needed, peer, start_ns + fabric->config.spin_ns);
  fabric->waiting = false;
  report_wait(fabric, start_ns);
  return reached;
}

uint32_t pen_fabric_count(const struct pen_fabric *fabric, uint32_t counter) {
  return fabric->counters[counter];
}

bool pen_fabric_wait(struct pen_fabric *fabric, uint32_t counter, uint32_t needed, uint32_t peer) {
  return wait_for(fabric, &fabric->counters[counter], needed, peer);
}

bool pen_fabric_wait_written(struct pen_fabric *fabric, const struct pen_fabric_write *write) {
  return wait_for(fabric, &write->completed, write->started, write->peer);
}

bool pen_fabric_wait_all(struct pen_fabric *fabric) {
  bool going = true;
  for (uint32_t p = 0; p < fabric->config.peer_count && going; p++) {
    while (going && fabric->in_flight[p] > 0) {
      going = wait_for(fabric, &fabric->completed, fabric->completed + 1, p);
    }
  }
  return going;
}

/* ---- writing ---- */

static ssize_t write_once(const struct pen_fabric *fabric, const struct pen_fabric_request *request,
                          uint64_t start_ns, struct pen_fabric_write *write) {
  const uint64_t time = fabric->has_times ? (uint64_t)pen_delay_clock(start_ns) << 32 : 0;
  return fi_writedata(fabric->endpoint, request->from, request->bytes, fabric->arena_descriptor,
                      time | request->counter, fabric->peers[request->peer],
                      fabric->bases[request->peer] + request->offset, fabric->keys[request->peer],
                      write);
}

bool pen_fabric_put(struct pen_fabric *fabric, const struct pen_fabric_request *request,
                    struct pen_fabric_write *write) {
  const uint64_t start_ns = pen_now_ns();
  bool blocked = false;
  ssize_t result;
  while ((result = write_once(fabric, request, start_ns, write)) == -FI_EAGAIN) {
    blocked = true;
    publish_wait(fabric, request->peer);
    pen_fabric_poll(fabric);
    if (is_aborted(fabric, request->peer)) {
      return false;
    }
    sched_yield(); /* while a connection is made: the peer may need the core */
  }
  if (blocked) {
    report_wait(fabric, start_ns);
  }
  if (result < 0) {
    snprintf(fabric->failure, sizeof fabric->failure, "fi_writedata: %s",
             fi_strerror((int)-result));
    fail_connection(fabric, request->peer);
    return false;
  }
  write->started++;
  write->peer = request->peer;
  fabric->in_flight[request->peer]++;
  return true;
}

static void add_address(struct pen_fabric *fabric, uint32_t peer,
                        const struct pen_fabric_address *address) {
  fabric->keys[peer] = address->key;
  fabric->bases[peer] = address->base;
  const int added = fi_av_insert(fabric->av, address->name, 1, &fabric->peers[peer], 0, NULL);
  check_call(added == 1 ? 0 : -FI_EADDRNOTAVAIL, "fi_av_insert", fabric->config.host);
}

bool pen_fabric_connect(struct pen_fabric *fabric, const struct pen_fabric_address *address,
                        const bool *peers) {
  uint32_t expected = 0;
  bool going = true;
  for (uint32_t p = 0; p < fabric->config.peer_count && going; p++) {
    if (peers[p]) {
      const struct pen_fabric_request hello = {
          .peer = p, .from = fabric->config.arena, .counter = hello_counter(&fabric->config)};
      add_address(fabric, p, &address[p]);
      going = pen_fabric_put(fabric, &hello, &fabric->hello) &&
              pen_fabric_wait_written(fabric, &fabric->hello);
      expected++;
    }
  }
  return going && pen_fabric_wait(fabric, hello_counter(&fabric->config), expected, UINT32_MAX);
}

/* ---- probes ---- */

static bool put_probes(struct pen_fabric *fabric, const bool *to, enum probe_kind kind,
                       uint32_t bytes) {
  const struct pen_fabric_config *config = &fabric->config;
  bool going = true;
  for (uint32_t p = 0; p < config->peer_count && going; p++) {
    const struct pen_fabric_request request = {
        .peer = p,
        .from = config->arena,
        .bytes = probe_has_bytes(kind, config->self, p) ? bytes : 0,
        .counter = probe_counter(config, config->self)};
    going = !to[p] || (pen_fabric_put(fabric, &request, &fabric->hello) &&
                       pen_fabric_wait_written(fabric, &fabric->hello));
  }
  return going;
}

static bool wait_probes(struct pen_fabric *fabric, const bool *from, uint32_t count) {
  bool going = true;
  for (uint32_t p = 0; p < fabric->config.peer_count && going; p++) {
    going = !from[p] || pen_fabric_wait(fabric, probe_counter(&fabric->config, p), count, p);
  }
  return going;
}

bool pen_fabric_probe(struct pen_fabric *fabric, const bool *to, const bool *from, uint32_t bytes) {
  bool going = true;
  for (uint32_t put = 0; put < PROBE_KINDS * PROBE_ROUNDS && fabric->has_times && going; put++) {
    if (put > 0 && put % (PROBE_KINDS * PROBE_REST_ROUNDS) == 0) {
      usleep(PROBE_REST_MS * 1000);
    }
    going = put_probes(fabric, to, put % PROBE_KINDS, bytes) && wait_probes(fabric, from, put + 1);
  }
  for (uint32_t p = 0; p < fabric->config.peer_count; p++) {
    fabric->probes[p].bytes = from[p] && fabric->has_times ? bytes : 0;
  }
  return going;
}

const struct pen_link_probe *pen_fabric_probe_of(const struct pen_fabric *fabric, uint32_t peer) {
  return &fabric->probes[peer];
}
