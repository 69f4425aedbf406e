/* handshake.c: the proofs of the run's secret: only the right secret, direction and connection give
 * one that is accepted, and a frame is accepted once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/control/handshake.h"

static const uint32_t rank_hosts[] = {0, 0, 1, 1};
static const struct pen_plan plan = {.rank_count = 4,
                                     .replica_count = 1,
                                     .tensor_ranks = 1,
                                     .host_count = 2,
                                     .rank_hosts = rank_hosts,
                                     .digest = {1, 2, 3}};
static const struct pen_membership first = {.plan = &plan, .own = 0, .only = PEN_NONE},
                                   second = {.plan = &plan, .own = 1, .only = PEN_NONE};
static const struct pen_secret secret = {{7, 8, 9}}, other_secret = {{7, 8, 10}};

/* A handshake between a command with the second pair of ranks and the first host. */
static struct pen_handshake make(const struct pen_secret *known) {
  return (struct pen_handshake){.secret = known,
                                .connects = pen_hello_new(PEN_ROLE_CONNECTS, &second, 0),
                                .accepts = pen_hello_new(PEN_ROLE_ACCEPTS, &first, 0)};
}

static void test_each_end_proves_itself(void **state) {
  (void)state;
  const struct pen_handshake handshake = make(&secret);
  uint8_t proof[PEN_PROOF_BYTES];
  for (int role = PEN_ROLE_CONNECTS; role <= PEN_ROLE_ACCEPTS; role++) {
    pen_handshake_prove(&handshake, role, proof);
    assert_true(pen_handshake_verify(&handshake, role, proof));
    for (size_t i = 0; i < sizeof proof; i++) {
      proof[i] ^= 0x10;
      assert_false(pen_handshake_verify(&handshake, role, proof));
      proof[i] ^= 0x10;
    }
  }
}

static void test_a_reflected_proof_is_refused(void **state) {
  (void)state;
  const struct pen_handshake handshake = make(&secret);
  uint8_t proof[PEN_PROOF_BYTES];
  pen_handshake_prove(&handshake, PEN_ROLE_ACCEPTS, proof);
  assert_false(pen_handshake_verify(&handshake, PEN_ROLE_CONNECTS, proof));
}

static void test_another_secret_is_refused(void **state) {
  (void)state;
  const struct pen_handshake handshake = make(&secret);
  struct pen_handshake other = handshake;
  uint8_t proof[PEN_PROOF_BYTES];
  other.secret = &other_secret;
  pen_handshake_prove(&other, PEN_ROLE_CONNECTS, proof);
  assert_false(pen_handshake_verify(&handshake, PEN_ROLE_CONNECTS, proof));
}

static void test_a_replayed_proof_is_refused(void **state) {
  (void)state;
  const struct pen_handshake handshake = make(&secret);
  struct pen_handshake later = handshake;
  uint8_t proof[PEN_PROOF_BYTES];
  pen_handshake_prove(&handshake, PEN_ROLE_CONNECTS, proof);
  later.accepts = pen_hello_new(PEN_ROLE_ACCEPTS, &first, 0); /* as before, except the nonce */
  assert_false(pen_handshake_verify(&later, PEN_ROLE_CONNECTS, proof));
}

static void test_a_proof_covers_both_hellos(void **state) {
  (void)state;
  const struct pen_handshake handshake = make(&secret);
  uint8_t proof[PEN_PROOF_BYTES];
  pen_handshake_prove(&handshake, PEN_ROLE_CONNECTS, proof);
  for (size_t i = 0; i < sizeof(struct pen_hello); i++) {
    struct pen_handshake changed = handshake;
    ((uint8_t *)&changed.connects)[i] ^= 1;
    assert_false(pen_handshake_verify(&changed, PEN_ROLE_CONNECTS, proof));
    changed = handshake;
    ((uint8_t *)&changed.accepts)[i] ^= 1;
    assert_false(pen_handshake_verify(&changed, PEN_ROLE_CONNECTS, proof));
  }
}

static void test_a_hello_names_ranks_of_the_plan(void **state) {
  (void)state;
  const struct {
    uint32_t host, only;
    bool right;
  } cases[] = {{0, PEN_NONE, true},  {1, PEN_NONE, true},  {1, 3, true},
               {1, 2, true},         {0, 3, false},        {0, 4, false},
               {0, 1u << 31, false}, {2, PEN_NONE, false}, {PEN_NONE, 0, false}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct pen_membership other = {
        .plan = &plan, .own = cases[i].host, .only = cases[i].only};
    struct pen_hello hello = pen_hello_new(PEN_ROLE_CONNECTS, &other, 0);
    assert_int_equal(pen_hello_check(&hello, PEN_ROLE_CONNECTS, &plan) == NULL, cases[i].right);
  }
  struct pen_hello hello = pen_hello_new(PEN_ROLE_CONNECTS, &second, 0);
  assert_non_null(pen_hello_check(&hello, PEN_ROLE_ACCEPTS, &plan));
  hello.version++;
  assert_non_null(pen_hello_check(&hello, PEN_ROLE_CONNECTS, &plan));
}

static void test_a_frame_is_accepted_once_and_in_order(void **state) {
  (void)state;
  const struct pen_handshake handshake = make(&secret);
  const char header[] = "header", first[] = "first frame", second[] = "second";
  struct pen_frame_key sends = pen_handshake_frame_key(&handshake, PEN_ROLE_CONNECTS),
                       receives = sends, reflects;
  uint8_t proof[2][PEN_PROOF_BYTES];
  pen_frame_sign(&sends, header, sizeof header, first, sizeof first, proof[0]);
  pen_frame_sign(&sends, header, sizeof header, second, sizeof second, proof[1]);

  struct pen_frame_key skips = receives;
  assert_false(pen_frame_verify(&skips, header, sizeof header, second, sizeof second, proof[1]));
  reflects = pen_handshake_frame_key(&handshake, PEN_ROLE_ACCEPTS);
  assert_false(pen_frame_verify(&reflects, header, sizeof header, first, sizeof first, proof[0]));

  assert_true(pen_frame_verify(&receives, header, sizeof header, first, sizeof first, proof[0]));
  struct pen_frame_key again = receives;
  assert_false(pen_frame_verify(&again, header, sizeof header, first, sizeof first, proof[0]));
  assert_true(pen_frame_verify(&receives, header, sizeof header, second, sizeof second, proof[1]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_each_end_proves_itself),
      cmocka_unit_test(test_a_reflected_proof_is_refused),
      cmocka_unit_test(test_another_secret_is_refused),
      cmocka_unit_test(test_a_replayed_proof_is_refused),
      cmocka_unit_test(test_a_proof_covers_both_hellos),
      cmocka_unit_test(test_a_hello_names_ranks_of_the_plan),
      cmocka_unit_test(test_a_frame_is_accepted_once_and_in_order),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
