/* signals.c: blocks the signals that the watchdog waits for (see signals.h). */
#include "runtime/supervise/signals.h"

#include <stddef.h>

#include "runtime/base/check.h"

sigset_t pen_blocked_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

void pen_block_signals(void) {
  struct sigaction plain = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
  const sigset_t blocked = pen_blocked_signals();
  pen_check(sigaction(SIGCHLD, &plain, NULL) == 0 && sigaction(SIGPIPE, &ignored, NULL) == 0 &&
                sigprocmask(SIG_BLOCK, &blocked, NULL) == 0,
            "cannot block signals");
}
