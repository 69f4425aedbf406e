/* control_accept.h: the first host's end of the control connections: it listens, and accepts the
 * commands that prove that they know the run's secret (handshake.h). No connection can stop another
 * one: sockets do not block, the number of open handshakes is fixed, and the oldest gives its place
 * to a new one. */
#ifndef PEN_CONTROL_ACCEPT_H
#define PEN_CONTROL_ACCEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/control/control_connect.h"

enum { PEN_HANDSHAKES_MAX = 16 }; /* that are open at a time */

/* A connection that is not proved. */
struct pen_open_handshake {
  struct pen_control_link link;
  struct pen_handshake handshake;
  uint64_t end_ns;
  bool answered; /* the other end's hello has arrived, and was answered */
  size_t received;
  uint8_t proof[PEN_PROOF_BYTES];
};

struct pen_control_server {
  struct pen_control_config config;
  int socket;
  char address[PEN_ADDRESS_BYTES]; /* that it listens at */
  uint16_t port;
  struct pen_open_handshake open[PEN_HANDSHAKES_MAX];
  uint32_t open_count;      /* the oldest first */
  uint64_t refusal_line_ns; /* when the next line about a refusal may be printed */
  uint32_t refusals_hidden; /* since the last line */
};

/* A command that is proved. Its digest and attempt are not compared. */
struct pen_proved_command {
  struct pen_control_link link;
  struct pen_hello hello;
};

/* Listens at an address of this host, as text, at this port, or 0: at any free one. Fails (71)
 * where it cannot. */
void pen_control_server_open(struct pen_control_server *server,
                             const struct pen_control_config *config, const char *address,
                             uint16_t port);

/* Waits up to timeout_ms for connections and their messages. True: *command has proved itself, and
 * waits for its verdict. */
bool pen_control_server_poll(struct pen_control_server *server, int timeout_ms,
                             struct pen_proved_command *command);

/* Prints `penstock: refused a connection from ADDRESS: REASON`, at most one line a second, and
 * closes it. */
void pen_control_refuse(struct pen_control_server *server, struct pen_control_link *link,
                        const char *reason);

void pen_control_server_close(struct pen_control_server *server);

/* The server's answer to a proved command: 0, or the status with which the command must exit. It is
 * the connection's first frame, which an empty socket takes whole. */
void pen_control_send_verdict(struct pen_control_link *link, uint32_t status);

#endif
