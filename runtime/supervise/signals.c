/* signals.c: blocks the signals that the watchdog waits for (see signals.h). */
#include "runtime/supervise/signals.h"

#include <stddef.h>

#include "runtime/base/check.h"
#include "runtime/base/stop_signals.h"

static sigset_t stop_signals(void) {
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < pen_stop_signal_count; i++) {
    if (!pen_stop_signal_is_ignored(pen_stop_signals[i])) {
      sigaddset(&set, pen_stop_signals[i]);
    }
  }
  return set;
}

sigset_t pen_blocked_signals(void) {
  sigset_t set = stop_signals();
  sigaddset(&set, SIGCHLD);
  return set;
}

void pen_stop_signals_end_command(bool yes) {
  const struct sigaction plain = {.sa_handler = SIG_DFL};
  const sigset_t set = stop_signals();
  for (size_t i = 0; i < pen_stop_signal_count; i++) {
    const int number = pen_stop_signals[i];
    pen_check(sigismember(&set, number) == 0 || sigaction(number, &plain, NULL) == 0,
              "cannot handle signals");
  }
  pen_check(sigprocmask(yes ? SIG_UNBLOCK : SIG_BLOCK, &set, NULL) == 0, "cannot block signals");
}

void pen_block_signals(void) {
  struct sigaction plain = {.sa_handler = SIG_DFL}, ignored = {.sa_handler = SIG_IGN};
  const sigset_t blocked = pen_blocked_signals();
  pen_check(sigaction(SIGCHLD, &plain, NULL) == 0 && sigaction(SIGPIPE, &ignored, NULL) == 0 &&
                sigprocmask(SIG_BLOCK, &blocked, NULL) == 0,
            "cannot block signals");
}
