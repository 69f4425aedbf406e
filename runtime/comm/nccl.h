/* nccl.h: the transport of ranks on any hosts, each with a GPU of its own, by NVIDIA's NCCL. */
#ifndef PEN_NCCL_H
#define PEN_NCCL_H

#include "runtime/comm/transport.h"

struct pen_nccl_calls;

/* Null where this binary was linked without NCCL. Allocate. */
struct pen_transport *pen_nccl_open(const struct pen_transport_config *config);
void *pen_nccl_allocate(const struct pen_plan *plan, uint32_t rank,
                        const struct pen_device *device);

/* The same over the calls given (nccl_api.h). */
struct pen_transport *pen_nccl_open_with(const struct pen_nccl_calls *calls,
                                         const struct pen_transport_config *config);

#endif
