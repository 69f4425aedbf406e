/* shm.h: the transport of ranks on the CPUs of one host, over shared memory. */
#ifndef PEN_SHM_H
#define PEN_SHM_H

#include "runtime/comm/transport.h"

/* The receive_bytes of the endpoint's arena are its receive region of the shared memory. Allocates;
 * the caller frees the result. */
struct pen_transport *pen_shm_open(const struct pen_transport_config *config);

#endif
