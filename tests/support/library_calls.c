/* library_calls.c: what a program may ask of sessions of two libraries of one model
 * (-DLIBRARY=NAME, -DSECOND=NAME), from another thread than the one that opened them:
 *
 *     library_calls INPUT TARGETS SEQUENCE FOLDER
 *
 * The samples are windows of the tokens 0, 1, 2, ... It prints what a test compares, scores
 * and texts on standard error, and waits
 * twice for a byte of standard input: until a rank has been killed, and until it is killed itself.
 */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock.h"

#define JOINED(a, b) a##b
#define LIBRARY_OBJECT(name) JOINED(pen_library_, name)
extern const struct pen_library LIBRARY_OBJECT(LIBRARY), LIBRARY_OBJECT(SECOND);

static struct pen_session *first, *second;
static char **words;

static int check(struct pen_session *session, int status) {
  if (status != 0) {
    printf("%d %s\n", status, pen_session_message(session));
  }
  return status;
}

static struct pen_session *open_with(const struct pen_library *library, const char *seed) {
  char message[PEN_SESSION_MESSAGE_BYTES];
  const char *const options[] = {"--seed", seed, NULL};
  struct pen_session *session;
  if (pen_session_open(library, options, &session, message) != 0) {
    printf("%s\n", message);
    exit(1);
  }
  return session;
}

/* Both inputs, for one use. */
static void fill(struct pen_samples samples[2], uint64_t dim[2], enum pen_session_use use) {
  dim[0] = pen_session_samples(first, use);
  dim[1] = strtoull(words[3], NULL, 10);
  for (uint64_t ahead = 0; ahead < 2; ahead++) {
    int32_t *data = malloc(dim[0] * dim[1] * sizeof *data);
    for (uint64_t e = 0; e < dim[0] * dim[1]; e++) {
      data[e] = (int32_t)(e + ahead);
    }
    samples[ahead] = (struct pen_samples){words[1 + ahead], "I32", 2, dim, data};
  }
}

/* All weights of the first session become those of the second; what does not fit is refused. */
static void copy_weights(void) {
  const char *name;
  const uint64_t *dim;
  uint32_t dim_count, count = 0;
  for (; (name = pen_session_weight(first, count, &dim_count, &dim)) != NULL; count++) {
    uint64_t elements = 1;
    for (uint32_t d = 0; d < dim_count; d++) {
      elements *= dim[d];
    }
    float *values = malloc(elements * sizeof *values);
    check(first, pen_session_read_weight(first, name, values, elements));
    check(second, pen_session_write_weight(second, name, values, elements));
    if (count == 0) {
      values[0] = NAN;
      check(second, pen_session_write_weight(second, name, values, elements + 1));
      check(second, pen_session_write_weight(second, name, values, elements));
    }
    free(values);
  }
  check(second, pen_session_read_weight(second, "none", NULL, 0));
}

/* The log-probabilities of all targets but the last, which is ignored; of one less there are none.
 */
static void score(struct pen_samples samples[2]) {
  const uint64_t count = samples[0].dim[0] * samples[0].dim[1];
  double *found = malloc(count * sizeof *found);
  ((int32_t *)samples[1].data)[count - 1] = -100;
  check(first, pen_session_score(first, samples, 2, found, count - 1));
  check(first, pen_session_score(first, samples, 2, found, count));
  for (uint64_t i = 0; i < count; i++) {
    fprintf(stderr, "score %.17g\n", found[i]);
  }
  free(found);
}

/* Two prompts are continued, and what cannot be is refused. */
static void generate(void) {
  uint32_t tokens[2][16] = {{65, 66}, {3, 4, 5}};
  struct pen_generated texts[] = {{tokens[0], 2}, {tokens[1], 3}};
  struct pen_generation by = {.tokens = 5,
                              .temperature = 0.8,
                              .top_p = 1,
                              .repetition_penalty = 1,
                              .seed = 7,
                              .end_of_text = -1};
  check(first, pen_session_generate(first, &by, texts, 2));
  for (int i = 0; i < 2; i++) {
    for (uint64_t t = 0; t < texts[i].count; t++) {
      fprintf(stderr, "%s%" PRIu32, t == 0 ? "text " : " ", texts[i].token[t]);
    }
    fprintf(stderr, "\n");
  }
  by.tokens = 9;
  check(first, pen_session_generate(first, &by, texts, 2));
  by.tokens = 1;
  tokens[1][1] = 97;
  check(first, pen_session_generate(first, &by, texts, 2));
  by.top_p = 0;
  check(first, pen_session_generate(first, &by, texts, 2));
}

static void save(struct pen_session *session, const char *name) {
  char folder[4096];
  snprintf(folder, sizeof folder, "%s/%s", words[4], name);
  check(session, pen_session_save(session, folder));
}

static void load(const char *name) {
  char folder[4096];
  snprintf(folder, sizeof folder, "%s/%s", words[4], name);
  check(first, pen_session_load(first, folder));
}

/* Null pointers, and calls of a process that the caller has forked: values, as any mistake. */
static void mistakes(const struct pen_samples samples[2]) {
  struct pen_samples half = samples[0];
  struct pen_step_result step;
  double loss;
  half.dim = NULL;
  check(NULL, pen_session_step(NULL, samples, 2, &step));
  check(first, pen_session_step(first, NULL, 2, &step));
  check(first, pen_session_step(first, &half, 1, &step));
  check(first, pen_session_step(first, samples, 2, NULL));
  check(first, pen_session_evaluate(first, samples, 2, &loss, NULL));
  check(first, pen_session_generate(first, NULL, NULL, 1));
  check(first, pen_session_read_weight(first, NULL, NULL, 0));
  check(first, pen_session_save(first, NULL));
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    const int status = pen_session_step(first, samples, 2, &step);
    pen_session_close(first);
    _exit(status);
  }
  int status;
  waitpid(child, &status, 0);
  printf("forked %d\n", WEXITSTATUS(status));
  pen_session_close(NULL);
}

static void *call(void *unused) {
  struct pen_samples samples[2];
  struct pen_step_result step;
  uint64_t dim[2], targets;
  double loss;
  fill(samples, dim, PEN_SESSION_EVALUATION);
  check(first, pen_session_evaluate(first, samples, 2, &loss, &targets));
  printf("loss %.17g of %" PRIu64 "\n", loss, targets);
  score(samples);
  generate();
  copy_weights();
  save(first, "first");
  save(second, "first");
  save(second, "second");
  fill(samples, dim, PEN_SESSION_STEP);
  ((int32_t *)samples[0].data)[dim[1] + 1] = 1 << 20;
  check(first, pen_session_step(first, samples, 2, &step));
  ((int32_t *)samples[0].data)[dim[1] + 1] = 0;
  mistakes(samples);
  check(first, pen_session_set_learning_rate(first, 0));
  check(first, pen_session_step(first, samples, 2, &step));
  printf("rate %g\n", step.learning_rate);
  save(first, "unchanged");
  check(first, pen_session_set_learning_rate(first, -1));
  check(first, pen_session_set_learning_rate(first, NAN));
  check(first, pen_session_step(first, samples, 2, &step));
  printf("rate %g step %" PRIu64 "\n", step.learning_rate, step.step);
  check(second, pen_session_step(second, samples, 2, &step));
  printf("second step %" PRIu64 "\n", step.step);
  fflush(stdout);
  getchar(); /* a rank is killed */
  check(first, pen_session_step(first, samples, 2, &step));
  check(first, pen_session_save(first, words[4]));
  load("nothing");
  check(first, pen_session_step(first, samples, 2, &step));
  load("second/step-00000000");
  load(".");
  check(first, pen_session_step(first, samples, 2, &step));
  if (chdir(words[4]) == 0) { /* binary and options are found from where it was opened */
    words[4] = ".";
  }
  load("unchanged");
  check(first, pen_session_step(first, samples, 2, &step));
  printf("loaded, step %" PRIu64 "\n", step.step);
  fflush(stdout);
  getchar(); /* this process is killed */
  return unused;
}

int main(int argc, char **argv) {
  pthread_t thread;
  if (argc < 5) {
    return 64;
  }
  words = argv;
  first = open_with(&LIBRARY_OBJECT(LIBRARY), "7");
  second = open_with(&LIBRARY_OBJECT(SECOND), "8");
  if (pthread_create(&thread, NULL, call, NULL) != 0 || pthread_join(thread, NULL) != 0) {
    return 71;
  }
  pen_session_close(first);
  pen_session_close(second);
  return 0;
}
