/* sent_bytes.h: how many bytes a rank sends in a step. */
#ifndef PEN_SENT_BYTES_H
#define PEN_SENT_BYTES_H

#include <stdint.h>

#include "runtime/exec/exec.h"

/* The bytes of the messages and of the collectives that the rank's list sends. What peers read in
 * its memory instead counts as sent. The vm's weights are listed. */
uint64_t pen_sent_bytes(const struct pen_vm *vm);

#endif
