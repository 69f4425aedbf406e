/* end_at.c: a library for LD_PRELOAD: a command of a run ends when it sends a certain message to
 * another command, before the message leaves it. END_AT is a list of kinds of messages, by number
 * or by name: END_AT="HEARTBEAT START" ends it at the first START that follows a heartbeat, so when
 * the ranks are started again. CONNECT is a connection that it is about to make, LISTEN a port at
 * which it is about to listen. END_SIGNAL: how [9, SIGKILL]. END_HALF=1: a part of the message
 * leaves it. DELAY_MS: each call of pthread_create() returns so much later. Ranks are left alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/control/control_sync.h"

enum { CONNECT = 1u << 30, LISTEN };

static pid_t command;
static uint32_t kinds[8];
static int count, next;

static uint32_t kind_of(const char *word) {
  static const struct {
    const char *name;
    uint32_t kind;
  } names[] = {{"CONNECT", CONNECT},         {"LISTEN", LISTEN},
               {"PLACE", PEN_MESSAGE_PLACE}, {"PLACES", PEN_MESSAGE_PLACES},
               {"START", PEN_MESSAGE_START}, {"HEARTBEAT", PEN_MESSAGE_HEARTBEAT}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    if (strcmp(names[i].name, word) == 0) {
      return names[i].kind;
    }
  }
  return (uint32_t)strtoul(word, NULL, 10);
}

__attribute__((constructor)) static void read_list(void) {
  const char *list = getenv("END_AT");
  char *words = strdup(list == NULL ? "" : list);
  for (char *word = strtok(words, " "); word != NULL && count < 8; word = strtok(NULL, " ")) {
    kinds[count++] = kind_of(word);
  }
  free(words);
  command = getpid();
}

/* Ends the command if this is the last of the list. */
static void reach(uint32_t kind, int socket, const struct iovec *message) {
  if (getpid() == command && next < count && kind == kinds[next] && ++next == count) {
    const char *number = getenv("END_SIGNAL");
    if (message != NULL && getenv("END_HALF") != NULL) {
      send(socket, message->iov_base, message->iov_len / 2, MSG_NOSIGNAL);
    }
    kill(command, number == NULL ? SIGKILL : atoi(number));
  }
}

ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
  static ssize_t (*real)(int, const struct msghdr *, int);
  const struct iovec *header = message->msg_iov;
  real = real != NULL ? real
                      : (ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
  if (message->msg_iovlen == 3 && header->iov_len == sizeof(struct pen_control_message)) {
    reach(((const struct pen_control_message *)header->iov_base)->kind, socket, header);
  }
  return real(socket, message, flags);
}

int connect(int socket, const struct sockaddr *address, socklen_t bytes) {
  static int (*real)(int, const struct sockaddr *, socklen_t);
  real = real != NULL
             ? real
             : (int (*)(int, const struct sockaddr *, socklen_t))dlsym(RTLD_NEXT, "connect");
  reach(CONNECT, socket, NULL);
  return real(socket, address, bytes);
}

int listen(int socket, int most) {
  static int (*real)(int, int);
  real = real != NULL ? real : (int (*)(int, int))dlsym(RTLD_NEXT, "listen");
  reach(LISTEN, socket, NULL);
  return real(socket, most);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument) {
  typedef int create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  const char *delay_ms = getenv("DELAY_MS");
  const int error =
      ((create *)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, run, argument);
  if (getpid() == command && delay_ms != NULL) {
    usleep(1000 * (useconds_t)atoi(delay_ms));
  }
  return error;
}
