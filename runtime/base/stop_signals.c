/* stop_signals.c: the signals that ask a run to end in order (see stop_signals.h). */
#include "runtime/base/stop_signals.h"

const int pen_stop_signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
static const char *const names[] = {"SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1"};
const size_t pen_stop_signal_count = sizeof pen_stop_signals / sizeof *pen_stop_signals;

const char *pen_stop_signal_name(int signal_number) {
  for (size_t i = 0; i < pen_stop_signal_count; i++) {
    if (pen_stop_signals[i] == signal_number) {
      return names[i];
    }
  }
  return "a signal";
}

/* A shell without job control has SIGINT ignored in what it starts in the background; there it is
 * still what its user sends. */
bool pen_stop_signal_is_ignored(int signal_number) {
  struct sigaction action;
  return signal_number == SIGHUP && sigaction(SIGHUP, NULL, &action) == 0 &&
         action.sa_handler == SIG_IGN;
}
