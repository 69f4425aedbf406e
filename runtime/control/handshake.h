/* handshake.h: how the two commands at the ends of a control connection prove to each other that
 * they know the run's secret, before either interprets a byte of the other.
 *
 *     the command that connects            the first host's
 *       hello(own nonce)          --->
 *                                 <---     hello(own nonce), proof
 *       proof                     --->
 *
 * All messages have a fixed size. A proof is HMAC-SHA256 (RFC 2104) under a key for its direction,
 * over both hellos; the keys of the frames that follow are derived likewise, so that no proof or
 * frame is valid in another direction, in another connection or a second time. Numbers are in the
 * byte order of the machine, which all hosts share. This file does no input or output. */
#ifndef PEN_HANDSHAKE_H
#define PEN_HANDSHAKE_H

#include <nettle/hmac.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/options.h"
#include "runtime/control/membership.h"
#include "runtime/plan/plan.h"

enum { PEN_SECRET_KEY_BYTES = 32, PEN_SECRET_BYTES_MIN = 32, PEN_SECRET_BYTES_MAX = 4096 };

/* The secret of a run, which the commands on all its hosts share: a key that is derived from the
 * bytes of a file. Who does not know it is refused at the control port. */
struct pen_secret {
  uint8_t key[PEN_SECRET_KEY_BYTES]; /* SHA-256 of the file's bytes; zeros with --no-secret or one
                                        host */
};

/* With several hosts: reads the file of --secret-file, else of the variable PENSTOCK_SECRET_FILE;
 * with --no-secret prints a warning. Fails (64) where neither is given, where group or others may
 * read the file, or where it has fewer than 32 or more than 4096 bytes; (66) where it cannot be
 * read. */
struct pen_secret pen_secret_read(const struct pen_plan *plan, const struct pen_options *options);

enum {
  PEN_NONCE_BYTES = 32,
  PEN_PROOF_BYTES = SHA256_DIGEST_SIZE,
  PEN_HANDSHAKE_VERSION = 1,
  PEN_HANDSHAKE_MS = 5000, /* how long one may take */
};

enum pen_handshake_role { PEN_ROLE_CONNECTS = 1, PEN_ROLE_ACCEPTS = 2 };

/* What a command says of itself. Interpreted only when it is proved. */
struct pen_hello {
  char protocol[8]; /* "penstock" */
  uint32_t version;
  uint32_t role;
  uint32_t host, only;    /* membership.h */
  uint32_t process_count; /* of its plan */
  uint32_t attempt;       /* restarts of the run so far */
  uint8_t digest[PEN_DIGEST_BYTES];
  uint8_t nonce[PEN_NONCE_BYTES];
};

/* The first host's message. */
struct pen_handshake_answer {
  struct pen_hello hello;
  uint8_t proof[PEN_PROOF_BYTES];
};

/* One end's knowledge of a handshake. */
struct pen_handshake {
  const struct pen_secret *secret;
  struct pen_hello connects, accepts; /* of both ends */
};

/* One direction of a proved connection. */
struct pen_frame_key {
  struct hmac_sha256_ctx hmac;
  uint64_t counter; /* frames so far */
};

/* A hello of `role` with a fresh nonce. Fails (71) where the system gives no random bytes. */
struct pen_hello pen_hello_new(enum pen_handshake_role role,
                               const struct pen_membership *membership, uint32_t attempt);

/* The proof of the end with `role`, once both hellos are known. */
void pen_handshake_prove(const struct pen_handshake *handshake, enum pen_handshake_role role,
                         uint8_t proof[PEN_PROOF_BYTES]);

/* Whether `proof` is that of the end with `role`; takes the same time for all wrong ones. */
bool pen_handshake_verify(const struct pen_handshake *handshake, enum pen_handshake_role role,
                          const uint8_t proof[PEN_PROOF_BYTES]);

/* Null, or why a proved hello cannot be the peer's: another protocol, version, role, or ranks that
 * do not exist. A digest is compared by the caller. */
const char *pen_hello_check(const struct pen_hello *hello, enum pen_handshake_role role,
                            const struct pen_plan *plan);

/* The key of the frames that the end with `role` sends. */
struct pen_frame_key pen_handshake_frame_key(const struct pen_handshake *handshake,
                                             enum pen_handshake_role role);

/* HMAC-SHA256 over the next frame: its counter, then the two byte ranges. Counts the frame. */
void pen_frame_sign(struct pen_frame_key *key, const void *header, size_t header_bytes,
                    const void *bytes, size_t count, uint8_t proof[PEN_PROOF_BYTES]);
bool pen_frame_verify(struct pen_frame_key *key, const void *header, size_t header_bytes,
                      const void *bytes, size_t count, const uint8_t proof[PEN_PROOF_BYTES]);

#endif
