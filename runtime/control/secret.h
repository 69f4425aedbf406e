/* secret.h: the secret of a run, which the commands on all its hosts share: a key that is derived
 * from the bytes of a file. Who does not know it is refused at the control port (handshake.h). */
#ifndef PEN_SECRET_H
#define PEN_SECRET_H

#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/plan/plan.h"

enum { PEN_SECRET_KEY_BYTES = 32, PEN_SECRET_BYTES_MIN = 32, PEN_SECRET_BYTES_MAX = 4096 };

struct pen_secret {
  uint8_t key[PEN_SECRET_KEY_BYTES]; /* SHA-256 of the file's bytes; zeros with --no-secret or one
                                        host */
};

/* With several hosts: reads the file of --secret-file, else of the variable PENSTOCK_SECRET_FILE;
 * with --no-secret prints a warning. Fails (64) where neither is given, where group or others may
 * read the file, or where it has fewer than 32 or more than 4096 bytes; (66) where it cannot be
 * read. */
struct pen_secret pen_secret_read(const struct pen_plan *plan, const struct pen_options *options);

#endif
