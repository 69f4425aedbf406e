/* main.c: penstock-NAME: runs a command on the plan that this binary was built from. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "kernels/kernels.h"
#include "runtime/base/check.h"
#include "runtime/base/environment.h"
#include "runtime/base/futex_counter.h"
#include "runtime/base/mailbox.h"
#include "runtime/commands/commands.h"
#include "runtime/commands/files.h"
#include "runtime/commands/info.h"
#include "runtime/commands/measure_costs.h"
#include "runtime/storage/initial_weights.h"
#include "runtime/supervise/binding.h"
#include "runtime/base/options.h"

static int train(const struct pen_options *options, uint64_t zero_ns) {
  return pen_run_train(&pen_plan, options, zero_ns);
}

static int eval(const struct pen_options *options, uint64_t zero_ns) {
  return pen_run_eval(&pen_plan, options, zero_ns);
}

static int score(const struct pen_options *options, uint64_t zero_ns) {
  return pen_run_score(&pen_plan, options, zero_ns);
}

static int generate(const struct pen_options *options, uint64_t zero_ns) {
  return pen_run_generate(&pen_plan, options, zero_ns);
}

static int init(const struct pen_options *options, uint64_t zero_ns) {
  (void)zero_ns;
  if (options->output == NULL) {
    pen_fail(PEN_EXIT_USAGE, "init needs --output FILE: where to write the weights");
  }
  pen_check_files_differ(options);
  pen_weights_expect_initial(&pen_plan);
  pen_check(pen_kernels_open() != NULL, "no memory for the buffers of matrix products");
  pen_weights_write(&pen_plan, options->output, options->seed);
  return 0;
}

static int info(const struct pen_options *options, uint64_t zero_ns) {
  (void)zero_ns;
  pen_info(&pen_plan, options);
  return 0;
}

static int measure(const struct pen_options *options, uint64_t zero_ns) {
  (void)zero_ns;
  return pen_measure_costs(&pen_plan, options);
}

static int (*const commands[PEN_COMMANDS])(const struct pen_options *options, uint64_t zero_ns) = {
    [PEN_COMMAND_TRAIN] = train,       [PEN_COMMAND_EVAL] = eval, [PEN_COMMAND_SCORE] = score,
    [PEN_COMMAND_GENERATE] = generate, [PEN_COMMAND_INIT] = init, [PEN_COMMAND_INFO] = info,
    [PEN_COMMAND_MEASURE] = measure,
};

/* Replaces a standard stream that the caller closed with one that fails; otherwise the next file
 * that is opened would get its descriptor. */
static void fill_standard_streams(void) {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; descriptor++) {
    if (fcntl(descriptor, F_GETFD) < 0) {
      pen_check(open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY) == descriptor,
                "cannot open descriptor %d", descriptor);
    }
  }
}

int main(int argc, char **argv) {
  uint64_t zero_ns = pen_now_ns();
  fill_standard_streams();
  pen_binding_limit_spin(&pen_plan, argv);
  struct pen_mailbox *mailbox = pen_mailbox_take(&argc, &argv);
  char program[256];
  snprintf(program, sizeof program, "penstock-%s", pen_plan.name);
  static struct pen_options options; /* its lists are kept to the end of the process */
  pen_options_read(&options, program, pen_plan.version, argc, argv);
  options.mailbox = mailbox;
  if (mailbox != NULL && mailbox->loaded[0] != '\0') { /* pen_session_load() */
    options.checkpoint = mailbox->loaded;
    options.resume = true;
    options.overwrite = false;
  }
  pen_environment_check();
  if (pen_plan.only_measures && options.command != PEN_COMMAND_MEASURE &&
      options.command != PEN_COMMAND_INFO) {
    pen_fail(PEN_EXIT_USAGE,
             "this binary has the commands measure and info alone: its topology has a group plan, "
             "and no pipeline.ranks, which penstock-plan chooses");
  }
  int status = commands[options.command](&options, zero_ns);
  if (fflush(stdout) != 0 || ferror(stdout) != 0) {
    pen_fail(PEN_EXIT_CANNOT_WRITE, "cannot write to standard output");
  }
  return status;
}
