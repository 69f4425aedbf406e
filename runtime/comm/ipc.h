/* ipc.h: the transport of ranks of one host whose GPUs reach each other's memory (CUDA IPC). */
#ifndef PEN_IPC_H
#define PEN_IPC_H

#include "runtime/comm/transport.h"

/* Allocates. */
struct pen_transport *pen_ipc_open(const struct pen_transport_config *config);

#endif
