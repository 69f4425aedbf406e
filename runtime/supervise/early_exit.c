/* early_exit.c: what a command does that fails before its ranks start (see early_exit.h). */
#define _GNU_SOURCE
#include "runtime/supervise/early_exit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/check.h"
#include "runtime/control/control_start.h"
#include "runtime/control/control_tcp.h"

enum { CONNECT_S = 10 }; /* the other commands may be about to start */

static struct pen_run failed;
static bool is_open;

/* In a process of its own, which may fail: connects as if the ranks would start. */
static _Noreturn void tell_others(int status) {
  const int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(null, STDERR_FILENO);
  alarm(CONNECT_S);
  pen_shared_open(&failed.shared, failed.plan);
  failed.shared.local = failed.local;
  pen_membership_open(&failed.membership, failed.plan, &failed.local);
  const struct pen_control_config config = {
      .plan = failed.plan, .secret = &failed.secret, .membership = &failed.membership};
  const struct pen_start_offer offer = {.host = failed.local.host,
                                        .hosts = failed.plan->host_count,
                                        .failed_status = (uint32_t)status};
  struct pen_control_tcp *tcp = pen_control_tcp_open(&config, CONNECT_S);
  pen_control_tcp_attach(tcp, &failed.shared);
  struct pen_start_state state;
  pen_control_tcp_agree(tcp, &offer, &state);
  _exit(0);
}

static void exit_early(int status, void *unused) {
  (void)unused;
  if (!is_open || status == 0 || status == PEN_EXIT_USAGE) {
    return;
  }
  fflush(NULL);
  const pid_t process = fork();
  if (process == 0) {
    is_open = false; /* exit() does nothing */
    tell_others(status);
  }
  if (process > 0) {
    waitpid(process, NULL, 0);
  }
}

void pen_early_exit_open(const struct pen_run *run) {
  if (run->plan->host_count > 1 && run->local.count > 0) {
    failed = *run;
    is_open = true;
    on_exit(exit_early, NULL);
  }
}

void pen_early_exit_close(void) { is_open = false; }
