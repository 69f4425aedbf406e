/* control_link.h: a connection between the commands of two hosts, whose ends have proved that they
 * know the run's secret (handshake.h). Each message is a frame: header, bytes, HMAC. */
#ifndef PEN_CONTROL_LINK_H
#define PEN_CONTROL_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/control/control_sync.h"
#include "runtime/control/handshake.h"

/* The next frame, of which `received` bytes have arrived. */
struct pen_arriving_frame {
  size_t received;
  struct pen_control_message header;
  unsigned char *bytes; /* [room]; null: none yet */
  size_t room;
  uint8_t proof[PEN_PROOF_BYTES];
};

/* Frames that the socket has not taken. */
struct pen_unsent_frames {
  unsigned char *bytes; /* [room]; null: none yet */
  size_t count, room;
};

struct pen_control_link {
  int socket;
  struct pen_frame_key sends, receives;
  char address[PEN_ADDRESS_BYTES]; /* of the other end, as text */
  struct pen_arriving_frame arriving;
  struct pen_unsent_frames unsent;
};

/* ---- calls that do not wait, for a thread that serves several links ----
 * They allocate where a frame is longer than those before. */

/* Receives what has arrived of the next frame, which may have at most so many bytes after its
 * header. 1: it is whole and verified, and its bytes are link->arriving.bytes until the next call.
 * 0: some of it is missing. -1, with errno: the connection is broken, or (EBADMSG) this is not the
 * other end's next frame. */
int pen_control_link_take(struct pen_control_link *link, size_t most,
                          struct pen_control_message *message);

/* Makes pen_control_link_take() continue with the frame whose header was received by
 * pen_control_link_receive_header(). False, with errno: it has too many bytes. */
bool pen_control_link_take_after(struct pen_control_link *link, size_t most,
                                 const struct pen_control_message *header);

/* Sends a frame, or keeps what the socket does not take behind what it has not taken before. A
 * broken connection is found by receiving. */
void pen_control_link_post(struct pen_control_link *link, const struct pen_control_message *message,
                           const void *bytes);

/* Sends what is kept, as far as the socket takes it. */
void pen_control_link_flush(struct pen_control_link *link);

/* Closes the socket and frees the memory. */
void pen_control_link_close(struct pen_control_link *link);

/* ---- calls that wait ---- */

/* Sends a frame; `message->bytes` follow the header. False: the connection is broken. */
bool pen_control_link_send(struct pen_control_link *link, const struct pen_control_message *message,
                           const void *bytes);

/* Receives the header of the next frame. False, with errno: the connection is broken. */
bool pen_control_link_receive_header(struct pen_control_link *link,
                                     struct pen_control_message *message);

/* After it, if message->bytes is what its kind has: receives the bytes and verifies the frame.
 * False, with errno: the connection is broken, or (EBADMSG) this is not the other end's next frame.
 */
bool pen_control_link_receive(struct pen_control_link *link,
                              const struct pen_control_message *message, void *bytes);

/* A frame of a kind and a number alone. *number is 0 where none came, or another kind. */
bool pen_control_link_send_number(struct pen_control_link *link, uint32_t kind, uint64_t number);
bool pen_control_link_receive_number(struct pen_control_link *link, uint32_t kind,
                                     uint64_t *number);

/* For a proved connection: it sends small messages at once, blocks, and fails if the other side
 * answers nothing for two seconds, also where nothing is sent. */
void pen_control_link_set_options(const struct pen_control_link *link);

/* Sends what is kept, then nothing more, and waits until the other end is closed, or `end_ns`; what
 * it still sends is dropped. A socket that is closed before resets the connection when more comes,
 * and then what is on its way to the other end, or was lost and is to be sent again, does not
 * arrive. */
void pen_control_link_await_close(struct pen_control_link *link, uint64_t end_ns);

/* From here on a call fails, with errno EAGAIN, where the other side says or takes nothing for so
 * long: its processes are stopped. 0: no call does. */
void pen_control_link_limit(const struct pen_control_link *link, double seconds);

#endif
