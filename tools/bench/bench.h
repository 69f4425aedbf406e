/* bench.h: the parts of `make bench`. It runs from the top of the build folder, where the binaries
 * are; what it makes on the way lies in bench/. All figures gather in one JSON document, from which
 * the table is printed:
 *
 *     machine, settings                        where, and how much was run
 *     matrix_products.rounds[]                 {one_process, two_processes, two_processes_bf16}:
 * what bench_matmul prints hop.rounds[]                             what bench_hop prints
 *     plans.NAME.rounds[]                      {dispatch, start, ours, peer?}: one run each, see
 * below plans.NAME.*, hop.*                      figures, most of them medians over the rounds
 *
 * Whatever fails ends the program with a line that says what. */
#ifndef PEN_TOOLS_BENCH_H
#define PEN_TOOLS_BENCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define BENCH_FOLDER "bench"
#define BENCH_TOKENS BENCH_FOLDER "/tokens.bin"
#define BENCH_WEIGHTS BENCH_FOLDER "/weights.safetensors"
enum {
  BENCH_WARM_STEPS = 3,
  BENCH_BRIEF_STEPS = 6,
  BENCH_PLANS = 9,
  BENCH_PATH_BYTES = 4096,
  BENCH_ROUNDS_MAX = 100
};

struct bench_settings {
  const char *peer;        /* Python with PyTorch; null: only ours */
  const char *peer_folder; /* where torch_llama.py lies */
  const char *topologies;
  unsigned rounds, steps; /* steps of a run, the warm-up among them */
  unsigned patience;      /* how often a run that others disturbed is done again */
};

extern const char *const bench_plans[BENCH_PLANS]; /* the first has one rank */

/* ---- bench_child.c ---- */

_Noreturn void bench_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum { BENCH_PROCESSES_MAX = 16, BENCH_ARGUMENTS_MAX = 64 };
struct bench_process {
  pid_t pid;
  uint64_t peak_bytes; /* greatest resident size seen */
};
struct bench_child {
  uint64_t start_ns; /* CLOCK_MONOTONIC before fork and exec */
  size_t process_count;
  struct bench_process processes[BENCH_PROCESSES_MAX]; /* the child, then its own children in the
                                                          order of their start */
  char *output;        /* its standard output; the caller's to free */
  double cpu_s;        /* user and system, of all its processes */
  uint64_t peak_bytes; /* resident, of the largest of its processes */
  double others_share; /* of the cores' time meanwhile, what others had: a bench is right when that
                          is near 0 */
};

uint64_t bench_now_ns(void); /* CLOCK_MONOTONIC */

/* Runs a program to its end, which must be with status 0. `sampled`: notes resident sizes, every 50
 * ms. A null ends arguments. */
void bench_run(struct bench_child *child, const char *const arguments[], bool sampled);

/* Returns when the cores have been idle for two seconds, or the seconds given are over. */
void bench_wait_for_quiet(unsigned seconds_max);

/* Runs a program and reads what it prints: a JSON object, which may follow lines of other kinds. To
 * it is added "others_share". A new reference. */
json_t *bench_run_json(const char *const arguments[]);

/* ---- bench_tokens.c ---- */

/* Writes a token file of `count` tokens below `vocab`: two bytes of the texts, hashed, make one
 * token; short texts repeat. */
void bench_tokens(const char *path, uint64_t count, uint32_t vocab, char **texts, int text_count);

/* ---- bench_ours.c ---- */

/* The plan by itself: `info` and the generator's report. {"info":…, "report":…} */
json_t *bench_plan(const struct bench_settings *settings, const char *plan);

/* The weights that both start from, made by `init`. */
void bench_weights(const char *plan);

/* One training run: {"step_ms":[…], "step_ms_median":…, "losses":[…],
 * "rank_peak_resident_bytes":[…], "launcher_peak_resident_bytes":…, "others_share":…} */
json_t *bench_train(const char *plan, unsigned steps);

/* One step with a trace, twice: {"exec_to_first_action_s":…, "exec_to_first_step_end_s":…,
 * "exec_to_first_action_after_idle_s":…, "others_share":…}. The first start follows an idle time: a
 * virtual machine may by then have given free memory back to its host, and fetches it again; the
 * second finds it there. */
json_t *bench_start(const char *plan);

/* ---- bench_peer.c ---- */

/* Whether the peer has the plan's schedule, and, for a plan of bf16, this CPU its products; `info`
 * is the plan's. It has no replicas. */
bool bench_peer_can(const json_t *info);

/* The same training by PyTorch: its JSON line. `model` is bench_matmul's. */
json_t *bench_peer(const struct bench_settings *settings, const json_t *model, const json_t *info);

/* ---- bench_figures.c ---- */

/* Pipelines side by side in a plan of which this is the info. */
double bench_replicas(const json_t *info);

/* From the rounds, all other figures, into the plans' objects and the hop's. */
void bench_figures(json_t *document);

double bench_median(double *values, size_t count);           /* sorts them */
double bench_number(const json_t *object, const char *path); /* "a.b.c"; NAN where absent */

/* Whether replicas share out the optimizer's state in a plan of which this is the info: it runs for
 * its memory, few steps. */
bool bench_is_sharded(const json_t *info);

/* Whether a plan, of which this is the info, is of bf16. */
bool bench_is_bf16(const json_t *info);

/* ---- bench_table.c ---- */

void bench_table(const json_t *document);

#endif
