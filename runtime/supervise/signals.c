/* signals.c: blocks the signals that the watchdog waits for (see signals.h). */
#include "runtime/supervise/signals.h"

#include <stddef.h>

#include "runtime/base/check.h"
#include "runtime/base/stop_signals.h"

sigset_t pen_blocked_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (size_t i = 0; i < pen_stop_signal_count; i++) {
    if (!pen_stop_signal_is_ignored(pen_stop_signals[i])) {
      sigaddset(&set, pen_stop_signals[i]);
    }
  }
  return set;
}

void pen_block_signals(void) {
  struct sigaction plain = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
  const sigset_t blocked = pen_blocked_signals();
  pen_check(sigaction(SIGCHLD, &plain, NULL) == 0 && sigaction(SIGPIPE, &ignored, NULL) == 0 &&
                sigprocmask(SIG_BLOCK, &blocked, NULL) == 0,
            "cannot block signals");
}
