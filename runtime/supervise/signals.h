/* signals.h: the signals that the parent of a run waits for. */
#ifndef PEN_SIGNALS_H
#define PEN_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

/* SIGCHLD and those of stop_signals.h. */
sigset_t pen_blocked_signals(void);

/* Blocks them, so that they remain pending until the watchdog waits for them, and ignores SIGPIPE:
 * to write to a closed pipe is an error. Ranks inherit this. */
void pen_block_signals(void);

/* While the command waits for those on other hosts: from true to false a signal of stop_signals.h
 * ends it at once, also one that is pending. Nothing of its ranks is running. */
void pen_stop_signals_end_command(bool yes);

#endif
