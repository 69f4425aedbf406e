/* control_link.c: the frames of a link that is served without waiting: in pieces of any size, of
 * any length, to an end that does not read; and none that was changed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "runtime/control/control_link.h"

enum { SMALL = 100, LARGE = 1 << 20 };

/* Two ends with the keys of one connection. */
struct ends {
  struct pen_control_link one, other;
};

static struct ends connect_ends(void) {
  const struct pen_secret secret = {{1, 2, 3}};
  const struct pen_handshake handshake = {.secret = &secret};
  const struct pen_frame_key there = pen_handshake_frame_key(&handshake, PEN_ROLE_CONNECTS),
                             back = pen_handshake_frame_key(&handshake, PEN_ROLE_ACCEPTS);
  int sockets[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  return (struct ends){{.socket = sockets[0], .sends = there, .receives = back},
                       {.socket = sockets[1], .sends = back, .receives = there}};
}

static void close_ends(struct ends *ends) {
  pen_control_link_close(&ends->one);
  pen_control_link_close(&ends->other);
}

static unsigned char pattern(size_t i) { return (unsigned char)(i * 7 + i / 251); }

static unsigned char *make_bytes(size_t count) {
  unsigned char *bytes = malloc(count);
  assert_non_null(bytes);
  for (size_t i = 0; i < count; i++) {
    bytes[i] = pattern(i);
  }
  return bytes;
}

static void expect_bytes(const struct pen_control_link *link,
                         const struct pen_control_message *message, uint64_t number, size_t count) {
  assert_int_equal(message->number, number);
  assert_int_equal(message->bytes, count);
  for (size_t i = 0; i < count; i++) {
    assert_int_equal(link->arriving.bytes[i], pattern(i));
  }
}

/* The bytes of two frames, as they leave a link. */
static size_t record_frames(struct ends *ends, unsigned char *stream, size_t room) {
  unsigned char *bytes = make_bytes(SMALL);
  for (uint64_t number = 0; number < 2; number++) {
    pen_control_link_post(
        &ends->one,
        &(struct pen_control_message){.kind = 9, .number = number, .bytes = number * SMALL}, bytes);
  }
  free(bytes);
  const ssize_t got = recv(ends->other.socket, stream, room, 0);
  assert_true(got > 0);
  return (size_t)got;
}

static void test_a_frame_arrives_in_pieces(void **state) {
  (void)state;
  struct ends ends = connect_ends();
  unsigned char stream[1000];
  struct pen_control_message message;
  const size_t bytes = record_frames(&ends, stream, sizeof stream);
  uint64_t whole = 0;
  for (size_t i = 0; i < bytes; i++) {
    assert_int_equal(send(ends.one.socket, &stream[i], 1, 0), 1);
    const int taken = pen_control_link_take(&ends.other, SMALL, &message);
    assert_in_range(taken, 0, 1);
    if (taken > 0) {
      expect_bytes(&ends.other, &message, whole, whole * SMALL);
      whole++;
    }
  }
  assert_int_equal(whole, 2);
  close_ends(&ends);
}

static void test_a_changed_frame_is_refused(void **state) {
  (void)state;
  const size_t bytes = 2 * (sizeof(struct pen_control_message) + PEN_PROOF_BYTES) + SMALL;
  for (size_t i = 0; i < bytes; i++) {
    struct ends ends = connect_ends();
    unsigned char stream[1000];
    struct pen_control_message message;
    int taken;
    assert_int_equal(record_frames(&ends, stream, sizeof stream), bytes);
    stream[i] ^= 1;
    assert_int_equal(send(ends.one.socket, stream, bytes, 0), bytes);
    pen_control_link_close(&ends.one); /* a longer one never comes */
    do {
      taken = pen_control_link_take(&ends.other, SMALL + 1, &message);
    } while (taken > 0 && message.number == 0);
    assert_int_equal(taken, -1);
    close_ends(&ends);
  }
}

static void test_a_longer_frame_is_refused(void **state) {
  (void)state;
  struct ends ends = connect_ends();
  struct pen_control_message message = {.bytes = SMALL};
  unsigned char *bytes = make_bytes(SMALL);
  pen_control_link_post(&ends.one, &message, bytes);
  assert_int_equal(pen_control_link_take(&ends.other, SMALL - 1, &message), -1);
  assert_int_equal(errno, EBADMSG);
  free(bytes);
  close_ends(&ends);
}

static void test_an_end_that_does_not_read_holds_up_nothing(void **state) {
  (void)state;
  struct ends ends = connect_ends();
  unsigned char *bytes = make_bytes(LARGE);
  struct pen_control_message message = {.kind = 1, .bytes = LARGE};
  enum { COUNT = 5 };
  for (message.number = 0; message.number < COUNT; message.number++) {
    pen_control_link_post(&ends.one, &message, bytes);
  }
  assert_true(ends.one.unsent.count > 0);
  for (uint64_t whole = 0; whole < COUNT;) {
    pen_control_link_flush(&ends.one);
    const int taken = pen_control_link_take(&ends.other, LARGE, &message);
    assert_in_range(taken, 0, 1);
    if (taken > 0) {
      expect_bytes(&ends.other, &message, whole++, LARGE);
    }
  }
  assert_int_equal(ends.one.unsent.count, 0);
  assert_int_equal(pen_control_link_take(&ends.other, LARGE, &message), 0);
  pen_control_link_close(&ends.one);
  assert_int_equal(pen_control_link_take(&ends.other, LARGE, &message), -1);
  free(bytes);
  close_ends(&ends);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_a_frame_arrives_in_pieces),
      cmocka_unit_test(test_a_changed_frame_is_refused),
      cmocka_unit_test(test_a_longer_frame_is_refused),
      cmocka_unit_test(test_an_end_that_does_not_read_holds_up_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
