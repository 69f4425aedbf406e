/* bench_peer.c: the same training by PyTorch's own pipelining, which ../shared/peer/torch_llama.py
 * runs (see bench.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/bench/bench.h"

enum { NUMBER_BYTES = 24 };

/* How the peer calls our schedules. */
static const struct schedule_name {
  const char *ours, *peer;
} schedule_names[] = {{"1f1b", "1f1b"},
                      {"interleaved", "interleaved"},
                      {"zero_bubble_v", "zbv"},
                      {"gpipe", "gpipe"},
                      {"looped_bfs", "looped_bfs"}};

/* Its options that take a number, and where that stands: `from_info` in our info, else in
 * bench_matmul's model. */
static const struct number_option {
  const char *option, *key;
  bool from_info;
} number_options[] = {
    {"--ranks", "ranks", true},
    {"--stages-per-rank", "stages_per_rank", true},
    {"--threads", "threads_per_rank", true},
    {"--microbatches", "microbatches", true},
    {"--microbatch", "microbatch", true},
    {"--sequence", "sequence", true},
    {"--layers", "layers", true},
    {"--vocab", "vocab", true},
    {"--hidden", "hidden", false},
    {"--heads", "heads", false},
    {"--kv-heads", "kv_heads", false},
    {"--ffn", "ffn", false},
};
enum { NUMBER_OPTIONS = sizeof number_options / sizeof *number_options };

static const char *schedule_of(const json_t *info) {
  const char *ours = json_string_value(json_object_get(info, "schedule"));
  for (size_t i = 0; i < sizeof schedule_names / sizeof *schedule_names; i++) {
    if (ours != NULL && strcmp(ours, schedule_names[i].ours) == 0) {
      return schedule_names[i].peer;
    }
  }
  return NULL;
}

/* Without instructions for it PyTorch multiplies bf16 value by value: minutes a step. */
static bool multiplies_bf16(void) {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool bench_peer_can(const json_t *info) {
  return bench_number(info, "ranks") > 1 && bench_replicas(info) < 2 && schedule_of(info) != NULL &&
         (!bench_is_bf16(info) || multiplies_bf16());
}

json_t *bench_peer(const struct bench_settings *settings, const json_t *model, const json_t *info) {
  const char *schedule = schedule_of(info), *arguments[BENCH_ARGUMENTS_MAX];
  char script[BENCH_PATH_BYTES], steps[NUMBER_BYTES], warm_up[NUMBER_BYTES],
      numbers[NUMBER_OPTIONS][NUMBER_BYTES];
  snprintf(script, sizeof script, "%s/torch_llama.py", settings->peer_folder);
  snprintf(steps, sizeof steps, "%u", settings->steps);
  snprintf(warm_up, sizeof warm_up, "%d", BENCH_WARM_STEPS);
  const char *const first[] = {settings->peer, script,       "--schedule", schedule,
                               "--data",       BENCH_TOKENS, "--init",     BENCH_WEIGHTS,
                               "--steps",      steps,        "--warm-up",  warm_up};
  memcpy(arguments, first, sizeof first);
  size_t used = sizeof first / sizeof *first;
  for (size_t i = 0; i < NUMBER_OPTIONS; i++) {
    const struct number_option *option = &number_options[i];
    snprintf(numbers[i], NUMBER_BYTES, "%.0f",
             bench_number(option->from_info ? info : model, option->key));
    arguments[used++] = option->option;
    arguments[used++] = numbers[i];
  }
  if (bench_is_bf16(info)) { /* its messages in bf16 too, as ours are */
    static const char *const bf16[] = {"--dtype", "bf16", "--stream", "bf16"};
    memcpy(arguments + used, bf16, sizeof bf16);
    used += sizeof bf16 / sizeof *bf16;
  }
  arguments[used] = NULL;
  return bench_run_json(arguments);
}
