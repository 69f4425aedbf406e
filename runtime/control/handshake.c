/* handshake.c: proofs of the run's secret (see handshake.h). */
#include "runtime/control/handshake.h"

#include <errno.h>
#include <nettle/memops.h>
#include <nettle/sha2.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input_file.h"
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

enum { PIPE_S = 5 };

/* Reads until the end of the file, or until the buffer is full. A pipe has PIPE_S: signals are
 * blocked meanwhile. */
static size_t read_bytes(const char *path, int fd, uint8_t *bytes, size_t most) {
  const uint64_t end_ns = pen_now_ns() + PIPE_S * 1000000000ull;
  struct pollfd polled = {.fd = fd, .events = POLLIN};
  size_t used = 0;
  ssize_t got = 1;
  while (used < most && got != 0) {
    const uint64_t now_ns = pen_now_ns();
    if (poll(&polled, 1, now_ns < end_ns ? (int)((end_ns - now_ns) / 1000000) : 0) == 0) {
      pen_fail(PEN_EXIT_NO_INPUT, "the secret, %s: a pipe that did not end within %d s", path,
               PIPE_S);
    }
    got = read(fd, bytes + used, most - used);
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      pen_fail(PEN_EXIT_NO_INPUT, "the secret, %s: %s", path, strerror(errno));
    }
    used += got > 0 ? (size_t)got : 0;
  }
  return used;
}

/* Ends the program if others may read or replace the secret: what ssh asks of a private key. */
static void check_access(const char *path, const struct stat *about) {
  if (about->st_uid != geteuid() && about->st_uid != 0) {
    pen_fail(PEN_EXIT_USAGE,
             "the secret, %s: its owner is user %u: it must be yours (user %u) or root's", path,
             (unsigned)about->st_uid, (unsigned)geteuid());
  }
  if ((about->st_mode & (S_IRGRP | S_IWGRP | S_IROTH | S_IWOTH)) != 0) {
    pen_fail(PEN_EXIT_USAGE, "the secret, %s: mode %03o: only its owner may %s it (chmod 600)",
             path, about->st_mode & 0777u,
             (about->st_mode & (S_IRGRP | S_IROTH)) != 0 ? "read" : "write");
  }
}

static struct pen_secret read_file(const char *path) {
  uint8_t bytes[PEN_SECRET_BYTES_MAX + 1];
  struct stat about;
  struct pen_input_error error;
  uint64_t file_bytes;
  const int fd = pen_input_open(path, PEN_INPUT_SECRET, &file_bytes, &error);
  if (fd < 0 || fstat(fd, &about) != 0) {
    pen_fail(fd < 0 ? error.status : PEN_EXIT_NO_INPUT, "the secret, %s: %s", path,
             fd < 0 ? error.text : strerror(errno));
  }
  check_access(path, &about);
  const size_t count = read_bytes(path, fd, bytes, sizeof bytes);
  close(fd);
  if (count < PEN_SECRET_BYTES_MIN || count > PEN_SECRET_BYTES_MAX) {
    pen_fail(PEN_EXIT_USAGE, "the secret, %s: %s than %d bytes", path,
             count < PEN_SECRET_BYTES_MIN ? "fewer" : "more",
             count < PEN_SECRET_BYTES_MIN ? PEN_SECRET_BYTES_MIN : PEN_SECRET_BYTES_MAX);
  }
  struct pen_secret secret;
  struct sha256_ctx hash;
  sha256_init(&hash);
  sha256_update(&hash, count, bytes);
  sha256_digest(&hash, sizeof secret.key, secret.key);
  explicit_bzero(bytes, sizeof bytes);
  return secret;
}

struct pen_secret pen_secret_read(const struct pen_plan *plan, const struct pen_options *options) {
  const char *path = options->secret_file;
  if (plan->host_count < 2) {
    return (struct pen_secret){{0}};
  }
  if (options->no_secret) {
    if (path != NULL) {
      pen_fail(PEN_EXIT_USAGE, "--no-secret and --secret-file exclude each other");
    }
    pen_warn("--no-secret: any process that reaches the hosts of this run can take part in it");
    return (struct pen_secret){{0}};
  }
  if (path == NULL) {
    path = getenv("PENSTOCK_SECRET_FILE");
  }
  if (path == NULL || path[0] == '\0') {
    pen_fail(PEN_EXIT_USAGE,
             "the ranks are on several hosts: say --secret-file FILE or set PENSTOCK_SECRET_FILE, "
             "the same file of at least %d random bytes on each host, or say --no-secret",
             PEN_SECRET_BYTES_MIN);
  }
  return read_file(path);
}
