/* supervise.h: the parent process of a run.
 *
 * In: a struct pen_run that a command has filled (rank/run.h). Out: the exit status.
 *
 *     launch.c     makes the shared memory, starts one process a rank, on the CPU each on its own
 *                  cores, and connects to the commands on other hosts
 *     host_memory.c whether the ranks fit into the host's memory
 *     binding.c    which cores each rank has
 *     watchdog.c   the loop of the parent while the ranks run: signals, failures, the end
 *     processes.c  which processes have exited or are stopped
 *     stall.c      which rank makes no progress, from the ranks' state in shared memory
 *     restart.c    from where the ranks are started again after a loss
 *     early_exit.c what a command does that fails before its ranks start
 *     signals.c    which signals the parent waits for
 *     dashboard.c  train --watch
 *     monitor.c    a thread that handles each step reported:
 *     slow.c       slow ranks and links: link_watch.c judges a link's messages,
 *                  drift.c says when a time is too high
 */
#ifndef PEN_SUPERVISE_H
#define PEN_SUPERVISE_H

#include "runtime/rank/run.h"

/* Starts the ranks and waits until all have exited; starts them again after a loss, while
 * --restarts are left. Closes the files; the caller reads the shared memory and closes it. Returns
 * the run's exit status. */
int pen_launch(struct pen_run *run);

#endif
