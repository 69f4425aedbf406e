/* ofi.h: the transport of ranks on the CPUs of any hosts, by libfabric (fabric.h). */
#ifndef PEN_OFI_H
#define PEN_OFI_H

#include "runtime/comm/transport.h"

/* In a plan of transport "auto" the ranks of one command go on to use shared memory among each
 * other. A binary is linked with it only where its plan asks for it. Allocates. */
struct pen_transport *pen_ofi_open(const struct pen_transport_config *config);

#endif
