/* stop_signals.h: the signals that ask a run to end in order: after the step that runs, saved. */
#ifndef PEN_STOP_SIGNALS_H
#define PEN_STOP_SIGNALS_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* SIGTERM; SIGINT; SIGHUP, of a terminal or connection that is gone, unless it is ignored, as under
 * nohup(1); SIGUSR1, which Slurm and others send ahead of a time limit (sbatch(1), --signal). */
extern const int pen_stop_signals[];
extern const size_t pen_stop_signal_count;

/* "SIGINT" and the like, of one of them; "a signal" of any other number. */
const char *pen_stop_signal_name(int signal_number);

/* Whether the process ignores the signal, and shall continue to. */
bool pen_stop_signal_is_ignored(int signal_number);

#endif
