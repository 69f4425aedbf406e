/* profiles.c: lists the profiles of a plan, and lowers those of eval and generation.
 *
 * The command generate runs one sequence through the stages, forward only. The text grows by one
 * token a step, and the cost of a step depends on the length of the sequence. The logits of a
 * causal model do not depend on later tokens, and positions count from the first token, so every
 * length that contains the whole text gives the same result. Hence there are profiles of several
 * lengths: model.sequence, which also serves the end of a longer text, and each a quarter of the
 * one before, down to the last with at least LENGTH_MIN tokens. A quarter and not half, since each
 * profile takes time in layout and verification.
 *
 * With a cache of keys and values (generate.prompts) a step reads new tokens alone: one of each of
 * several texts, or of one text, or a chunk of one prompt. The profiles above then serve the texts
 * that are longer than the sequence.
 *
 * A model with losses that have shares has a profile for score, too, that of an evaluation with the
 * logits of texts at its end.
 *
 * A step of generation has one microbatch, because the next token needs the previous one. Its
 * actions are those of eval, with the same weights in the same arena. */
#include "gen/model/model.h"
#include "gen/lower/profiles.h"

#include "gen/base/arena.h"
#include "gen/base/pass_times.h"
#include "gen/families/families.h"
#include "gen/schedule/schedule.h"
#include "gen/topology/description.h"
#include "gen/topology/shapes.h"

enum { LENGTH_MIN = 64, LENGTHS_MAX = 32, CHUNK_MAX = 64 };

static size_t add_bucket(struct pen_profile_input *profile, const struct pen_bucket *bucket,
                         const char *suffix) {
  const struct pen_partition *partition = bucket->partition;
  bool trains = bucket->topology->trains;
  size_t count = 0;
  struct pen_lowered *forward = bucket->lowered;
  if (trains) {
    profile[count++] = (struct pen_profile_input){pen_text("train%s", suffix),
                                                  PEN_TRAIN,
                                                  bucket->lowered,
                                                  bucket->own,
                                                  bucket->topology,
                                                  partition};
    forward =
        pen_lower_forward(pen_compose_forward(partition), partition,
                          pen_training_of(bucket->topology, partition, bucket->eval), PEN_EVAL);
  }
  if (bucket->topology->only_trains) return count;
  profile[count++] = (struct pen_profile_input){
      pen_text("eval%s", suffix), PEN_EVAL, forward, bucket->eval, bucket->topology, partition};
  return count;
}

static struct pen_profile_input generation_profile(const struct pen_bucket *bucket,
                                                   struct pen_topology *window, int kind,
                                                   const char *name) {
  window->generates = true;
  window->model_loss_rows = 0;                           /* the head has a row of each sequence */
  if (window->sequence % window->tensor_parallel_splits) /* or fewer tokens than tensor ranks */
    window->tensor_parallel_sequence = false;
  struct pen_partition *partition = pen_new(1, sizeof *partition);
  *partition = *bucket->partition;
  partition->microbatch_count = 1;
  struct pen_graph *const *graph = pen_graphs_of(window, &partition->stages, false);
  return (struct pen_profile_input){
      name,
      kind,
      pen_lower_forward(pen_compose_forward(partition), partition,
                        pen_training_of(bucket->topology, partition, graph), kind),
      graph,
      window,
      partition};
}

/* The profile of score: the forwards of eval, up to the logits. */
static struct pen_profile_input score_profile(const struct pen_bucket *bucket) {
  struct pen_topology *scored = pen_new(1, sizeof *scored);
  *scored = *bucket->topology;
  scored->scores = true;
  struct pen_graph *const *graph = pen_graphs_of(scored, &bucket->partition->stages, false);
  return (struct pen_profile_input){
      "score",
      PEN_SCORE,
      pen_lower_forward(pen_compose_forward(bucket->partition), bucket->partition,
                        pen_training_of(bucket->topology, bucket->partition, graph), PEN_SCORE),
      graph,
      scored,
      bucket->partition};
}

/* Adds the profiles that read whole sequences. */
static size_t add_windows(struct pen_profile_input *profile, const struct pen_bucket *bucket) {
  int64_t sequence = bucket->topology->model_sequence;
  size_t count = 0;
  do {
    profile[count++] =
        generation_profile(bucket, pen_topology_of_window(bucket->topology, sequence), PEN_GENERATE,
                           pen_text("generate_%lld", (long long)sequence));
    sequence /= 4;
  } while (sequence >= LENGTH_MIN);
  return count;
}

/* The tokens of a prompt that a step reads at once: they divide the sequence. 1: there is no such
 * number. */
static int64_t chunk_of(int64_t sequence) {
  int64_t chunk = CHUNK_MAX;
  while (chunk > 1 && (sequence % chunk != 0)) chunk -= PEN_CACHED_CHUNK;
  return chunk > 1 ? chunk : 1;
}

/* Adds the profiles over a cache: a token of each prompt, a token of one, a chunk of one. */
static size_t add_cached(struct pen_profile_input *profile, const struct pen_bucket *bucket) {
  const struct pen_topology *topology = bucket->topology;
  const int64_t prompts = topology->generate_prompts, chunk = chunk_of(topology->model_sequence);
  const struct { int64_t prompts, tokens; } step[] = {{prompts, 1}, {1, 1}, {1, chunk}};
  size_t count = 0;
  if (!pen_topology_has_cache(topology)) return 0;
  for (size_t i = 0; i < sizeof step / sizeof *step; i++) {
    const bool again =
        i > 0 && step[i].prompts == step[i - 1].prompts && step[i].tokens == step[i - 1].tokens;
    if (again) continue;
    profile[count++] = generation_profile(
        bucket, pen_topology_of_cache(topology, step[i].prompts, step[i].tokens), PEN_CACHED,
        pen_text("generate_%lldx%lld", (long long)step[i].prompts, (long long)step[i].tokens));
  }
  return count;
}

struct pen_profile_inputs pen_profiles_of(const struct pen_bucket *bucket, size_t bucket_count) {
  struct pen_profile_input *profile = pen_new(2 * bucket_count + LENGTHS_MAX, sizeof *profile);
  size_t count = 0;
  pen_pass("lower eval");
  for (size_t i = 0; i < bucket_count; i++) {
    int64_t sequence = bucket[i].topology->sequence;
    count +=
        add_bucket(&profile[count], &bucket[i], i ? pen_text("_%lld", (long long)sequence) : "");
  }
  pen_pass("generation");
  const struct pen_description *description = bucket->topology->description;
  if (pen_topology_reads_texts(bucket->topology) && !bucket->topology->only_trains) {
    if (description && description->share_count > 0) profile[count++] = score_profile(bucket);
    count += add_windows(&profile[count], bucket);
    count += add_cached(&profile[count], bucket);
  }
  return (struct pen_profile_inputs){profile, count};
}
