/* close_order.c: a library for LD_PRELOAD: writes to the file CLOSE_ORDER, for each connection over
 * which a command has said GOODBYE, whether the other end was closed when it closed its own: "last"
 * or "first". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/control/control_sync.h"

enum { SOCKETS_MAX = 1024 };

static pid_t command;
static char ended[SOCKETS_MAX];

__attribute__((constructor)) static void note_command(void) { command = getpid(); }

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
  ssize_t (*real)(int, const struct msghdr *, int) =
      (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
  const struct iovec *header = message->msg_iov;
  if (getpid() == command && socket < SOCKETS_MAX && message->msg_iovlen == 3 &&
      header->iov_len == sizeof(struct pen_control_message) &&
      ((const struct pen_control_message *)header->iov_base)->kind == PEN_MESSAGE_GOODBYE) {
    ended[socket] = 1;
  }
  return real(socket, message, flags);
}

int close(int socket) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
  char next;
  if (getpid() == command && socket >= 0 && socket < SOCKETS_MAX && ended[socket]) {
    const char *order = recv(socket, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ? "last\n" : "first\n";
    const int to = open(getenv("CLOSE_ORDER"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (to >= 0) {
      const ssize_t written = write(to, order, order[0] == 'l' ? 5 : 6);
      (void)written;
      real(to);
    }
    ended[socket] = 0;
  }
  return real(socket);
}
