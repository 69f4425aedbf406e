/* transport.c: which transports this binary has (see transport.h). */
#include "runtime/comm/transport.h"

#include <stdlib.h>

#include "runtime/base/check.h"
#include "runtime/comm/ipc.h"
#include "runtime/comm/nccl.h"
#include "runtime/comm/ofi.h"
#include "runtime/comm/shm.h"
#include "runtime/comm/transport_base.h"

/* Null unless the link asks for it (Makefile.am, OFI_LINK). */
#pragma weak pen_ofi_open

static void *allocate_on_device(const struct pen_plan *plan, uint32_t rank,
                                const struct pen_device *device) {
  void *arena = device->allocate(plan->memory[rank].arena_bytes);
  if (arena == NULL || device->error() != NULL) {
    pen_fail(PEN_EXIT_SYSTEM, "device %s: the arena: %s", device->name,
             device->error() == NULL ? "none" : device->error());
  }
  return arena;
}

static struct pen_transport *open_alone(const struct pen_transport_config *config) {
  struct pen_transport *transport = pen_allocate(1, sizeof *transport, "a transport");
  pen_transport_fill(transport, config);
  transport->ops = &pen_transport_alone;
  return transport;
}

struct transport_kind {
  void *(*allocate)(const struct pen_plan *plan, uint32_t rank, const struct pen_device *device);
  struct pen_transport *(*open)(const struct pen_transport_config *config); /* null: not linked */
};

static const struct transport_kind kinds[PEN_TRANSPORTS] = {
    [PEN_TRANSPORT_AUTO] = {allocate_on_device, pen_ofi_open},
    [PEN_TRANSPORT_SHM] = {allocate_on_device, pen_shm_open},
    [PEN_TRANSPORT_OFI] = {allocate_on_device, pen_ofi_open},
    [PEN_TRANSPORT_IPC] = {allocate_on_device, pen_ipc_open},
    [PEN_TRANSPORT_NCCL] = {pen_nccl_allocate, pen_nccl_open},
};
static const struct transport_kind alone = {allocate_on_device, open_alone};

/* Which of them a plan asks for: its own, except where a rank has no others. */
static const struct transport_kind *find_kind(const struct pen_plan *plan,
                                              const struct pen_device *device) {
  return pen_process_count(plan) > 1 ? &kinds[plan->transport]
         : device->asynchronous      ? &alone
                                     : &kinds[PEN_TRANSPORT_SHM];
}

void *pen_transport_allocate(const struct pen_plan *plan, uint32_t rank,
                             const struct pen_device *device) {
  void *arena = find_kind(plan, device)->allocate(plan, rank, device);
  return arena == NULL ? allocate_on_device(plan, rank, device) : arena;
}

struct pen_transport *pen_transport_open(const struct pen_transport_config *config) {
  const struct transport_kind *kind = find_kind(config->endpoint->plan, config->device);
  struct pen_transport *transport = kind->open == NULL ? NULL : kind->open(config);
  if (transport == NULL) {
    pen_fail(PEN_EXIT_SYSTEM,
             "the plan is for the transport %s, which this binary was linked without",
             pen_transport_row(config->endpoint->plan->transport)->text);
  }
  return transport;
}
