/* child.c: processes that end with the one that started them (see child.h). */
#define _GNU_SOURCE
#include "runtime/base/child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "runtime/base/check.h"

void pen_child_end_with(pid_t parent) {
  pen_check(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0,
            "cannot request a signal at the exit of the parent");
  if (getppid() != parent) { /* it may have exited before the prctl() */
    _exit(PEN_EXIT_LOST);
  }
}
