/* handshake.c: proofs of the run's secret (see handshake.h). */
#include "runtime/control/handshake.h"

#include <nettle/memops.h>
#include <string.h>
#include <sys/random.h>

#include "runtime/base/check.h"

static const char protocol[sizeof((struct pen_hello *)0)->protocol] = "penstock";

struct pen_hello pen_hello_new(enum pen_handshake_role role,
                               const struct pen_membership *membership, uint32_t attempt) {
  struct pen_hello hello = {.version = PEN_HANDSHAKE_VERSION,
                            .role = role,
                            .host = membership->own,
                            .only = membership->only,
                            .process_count = pen_process_count(membership->plan),
                            .attempt = attempt};
  memcpy(hello.protocol, protocol, sizeof hello.protocol);
  memcpy(hello.digest, membership->plan->digest, sizeof hello.digest);
  pen_check(getrandom(hello.nonce, sizeof hello.nonce, 0) == (ssize_t)sizeof hello.nonce,
            "cannot get random bytes");
  return hello;
}

/* HMAC under the secret, over a label and both hellos. */
static void authenticate(const struct pen_handshake *handshake, const char *label,
                         uint8_t result[PEN_PROOF_BYTES]) {
  struct hmac_sha256_ctx hmac;
  hmac_sha256_set_key(&hmac, sizeof handshake->secret->key, handshake->secret->key);
  hmac_sha256_update(&hmac, strlen(label) + 1, (const uint8_t *)label);
  hmac_sha256_update(&hmac, sizeof handshake->connects, (const uint8_t *)&handshake->connects);
  hmac_sha256_update(&hmac, sizeof handshake->accepts, (const uint8_t *)&handshake->accepts);
  hmac_sha256_digest(&hmac, PEN_PROOF_BYTES, result);
}

void pen_handshake_prove(const struct pen_handshake *handshake, enum pen_handshake_role role,
                         uint8_t proof[PEN_PROOF_BYTES]) {
  authenticate(handshake,
               role == PEN_ROLE_CONNECTS ? "penstock proof, connects" : "penstock proof, accepts",
               proof);
}

bool pen_handshake_verify(const struct pen_handshake *handshake, enum pen_handshake_role role,
                          const uint8_t proof[PEN_PROOF_BYTES]) {
  uint8_t expected[PEN_PROOF_BYTES];
  pen_handshake_prove(handshake, role, expected);
  return memeql_sec(expected, proof, sizeof expected) != 0;
}

const char *pen_hello_check(const struct pen_hello *hello, enum pen_handshake_role role,
                            const struct pen_plan *plan) {
  if (memcmp(hello->protocol, protocol, sizeof protocol) != 0 ||
      hello->version != PEN_HANDSHAKE_VERSION || hello->role != (uint32_t)role) {
    return "another version of the protocol";
  }
  if (memcmp(hello->digest, plan->digest, sizeof hello->digest) == 0 &&
      (hello->process_count != pen_process_count(plan) ||
       hello->host >= pen_host_and_spare_count(plan) ||
       (hello->only != PEN_NONE && pen_rank_set_of(plan, hello->host, hello->only).count == 0))) {
    return "ranks that the plan does not have";
  }
  return NULL;
}

struct pen_frame_key pen_handshake_frame_key(const struct pen_handshake *handshake,
                                             enum pen_handshake_role role) {
  struct pen_frame_key key = {0};
  uint8_t derived[PEN_PROOF_BYTES];
  authenticate(handshake,
               role == PEN_ROLE_CONNECTS ? "penstock frames, connects" : "penstock frames, accepts",
               derived);
  hmac_sha256_set_key(&key.hmac, sizeof derived, derived);
  explicit_bzero(derived, sizeof derived);
  return key;
}

void pen_frame_sign(struct pen_frame_key *key, const void *header, size_t header_bytes,
                    const void *bytes, size_t count, uint8_t proof[PEN_PROOF_BYTES]) {
  const uint64_t counter = key->counter++;
  hmac_sha256_update(&key->hmac, sizeof counter, (const uint8_t *)&counter);
  hmac_sha256_update(&key->hmac, header_bytes, header);
  hmac_sha256_update(&key->hmac, count, bytes);
  hmac_sha256_digest(&key->hmac, PEN_PROOF_BYTES, proof); /* and begins the next */
}

bool pen_frame_verify(struct pen_frame_key *key, const void *header, size_t header_bytes,
                      const void *bytes, size_t count, const uint8_t proof[PEN_PROOF_BYTES]) {
  uint8_t expected[PEN_PROOF_BYTES];
  pen_frame_sign(key, header, header_bytes, bytes, count, expected);
  return memeql_sec(expected, proof, sizeof expected) != 0;
}
