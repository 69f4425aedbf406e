/* library_loop.c: a program that trains by a library, which a test links it with (-DLIBRARY=NAME):
 *
 *     library_loop TOKENS SEQUENCE NAME:DTYPE NAME:DTYPE STEPS[MORE] FOLDER [OPTION...]
 *
 * The samples are the windows of a token file of llm.c's format, from its first on, as the two
 * named inputs, tokens and targets. Each step prints loss and gradient norm; then the state is
 * saved in the folder, unless that is "". MORE is what else is done after each step, in letters: e
 * evaluates the same samples, and g continues a text, which print on standard error, o looks at an
 * output; s scores the samples, and w reads all weights and sets the first one to what it was,
 * which print there, too; d sets the second one to 0.5, D to 0.25; r sets the learning rate; q
 * ends with 64, without closing; c
 * continues after samples that others do not give; l loads the folder when it was saved and
 * evaluates the last samples. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "penstock.h"

enum { HEADER_BYTES = 1024, DIFFERS = 65 };

#define JOINED(a, b) a##b
#define LIBRARY_OBJECT(name) JOINED(pen_library_, name)
extern const struct pen_library LIBRARY_OBJECT(LIBRARY);

/* An input that a step reads. */
struct input {
  struct pen_samples samples;
  uint64_t dim[2];
  uint64_t ahead; /* of a window's token: 1 for targets */
  union {
    int32_t *i32;
    int64_t *i64;
  } to;
};

static void fail(int status, const char *message) {
  if (status != 0) {
    fprintf(stderr, "%s\n", message);
    exit(status);
  }
}

static uint16_t *read_tokens(const char *path) {
  FILE *file = fopen(path, "rb");
  uint16_t *tokens = calloc(1 << 20, 1);
  if (file == NULL || tokens == NULL || fseek(file, HEADER_BYTES, SEEK_SET) != 0 ||
      fread(tokens, 1, 1 << 20, file) == 0) {
    fail(66, path);
  }
  fclose(file);
  return tokens;
}

static struct input input_of(char *word, uint64_t samples, uint64_t sequence, uint64_t ahead) {
  struct input input = {.dim = {samples, sequence}, .ahead = ahead};
  input.samples.name = strtok(word, ":");
  input.samples.dtype = strtok(NULL, ":");
  input.samples.dim_count = 2;
  input.samples.data = input.to.i64 = calloc(samples * sequence, sizeof(int64_t));
  return input;
}

static void fill(struct input *input, const uint16_t *tokens, uint64_t first_window) {
  const uint16_t *from = tokens + first_window * input->dim[1] + input->ahead;
  for (uint64_t e = 0; e < input->dim[0] * input->dim[1]; e++) {
    if (strcmp(input->samples.dtype, "I64") == 0) {
      input->to.i64[e] = from[e];
    } else {
      input->to.i32[e] = from[e];
    }
  }
}

static void evaluate(struct pen_session *session, const struct pen_samples samples[2]) {
  double loss;
  uint64_t targets;
  fail(pen_session_evaluate(session, samples, 2, &loss, &targets), pen_session_message(session));
  fprintf(stderr, "evaluated %.17g %" PRIu64 "\n", loss, targets);
}

static void generate(struct pen_session *session) {
  uint32_t tokens[16] = {65, 66};
  struct pen_generated text = {tokens, 2};
  const struct pen_generation by = {.tokens = 4,
                                    .temperature = 0.8,
                                    .top_p = 1,
                                    .repetition_penalty = 1,
                                    .seed = 7,
                                    .end_of_text = -1};
  fail(pen_session_generate(session, &by, &text, 1), pen_session_message(session));
  fprintf(stderr, "text");
  for (uint64_t t = 0; t < text.count; t++) {
    fprintf(stderr, " %" PRIu32, tokens[t]);
  }
  fprintf(stderr, "\n");
}

static void score(struct pen_session *session, const struct pen_samples samples[2]) {
  static double scores[1 << 12];
  const uint64_t count = pen_session_samples(session, PEN_SESSION_SCORES);
  fail(pen_session_score(session, samples, 2, scores, count), pen_session_message(session));
  fprintf(stderr, "scores");
  for (uint64_t i = 0; i < count; i++) {
    fprintf(stderr, " %.17g", scores[i]);
  }
  fprintf(stderr, "\n");
}

/* The sum of each weight, which rises by its elements' places. */
static void copy_weights(struct pen_session *session) {
  static float values[1 << 20];
  const uint64_t *dim;
  const char *name;
  uint32_t dim_count;
  for (uint32_t i = 0; (name = pen_session_weight(session, i, &dim_count, &dim)) != NULL; i++) {
    const uint64_t count = dim[0] * (dim_count > 1 ? dim[1] : 1);
    double sum = 0;
    fail(pen_session_read_weight(session, name, values, count), pen_session_message(session));
    for (uint64_t e = 0; e < count; e++) {
      sum += values[e] * (double)(e + 1);
    }
    fprintf(stderr, "weight %s %.17g\n", name, sum);
    fail(i == 0 ? pen_session_write_weight(session, name, values, count) : 0,
         pen_session_message(session));
  }
}

static void change_weight(struct pen_session *session, float value) {
  static float values[1 << 20];
  const uint64_t *dim;
  uint32_t dim_count;
  const char *name = pen_session_weight(session, 1, &dim_count, &dim);
  const uint64_t count = dim[0] * (dim_count > 1 ? dim[1] : 1);
  for (uint64_t e = 0; e < count; e++) {
    values[e] = value;
  }
  fail(pen_session_write_weight(session, name, values, count), pen_session_message(session));
}

/* What else a session is asked for between two steps, with samples of both inputs. */
static void ask_more(struct pen_session *session, const struct pen_samples samples[2],
                     const char *more) {
  struct pen_samples output;
  if (strchr(more, 'e') != NULL) {
    evaluate(session, samples);
  }
  if (strchr(more, 's') != NULL) {
    score(session, samples);
  }
  if (strchr(more, 'w') != NULL) {
    copy_weights(session);
  }
  if (strchr(more, 'd') != NULL || strchr(more, 'D') != NULL) {
    change_weight(session, strchr(more, 'd') != NULL ? 0.5F : 0.25F);
  }
  if (strchr(more, 'g') != NULL) {
    generate(session);
  }
  if (strchr(more, 'q') != NULL) {
    fail(64, "not closed");
  }
  if (strchr(more, 'r') != NULL) {
    fail(pen_session_set_learning_rate(session, 0.5), pen_session_message(session));
  }
  if (strchr(more, 'o') != NULL &&
      (pen_session_output(session, 0, &output) == NULL || output.dim[0] != samples->dim[0])) {
    fail(1, "no output");
  }
}

int main(int argc, char **argv) {
  char message[PEN_SESSION_MESSAGE_BYTES];
  struct pen_session *session;
  struct pen_step_result step;
  if (argc < 7) {
    return 64;
  }
  setvbuf(stdout, NULL, _IOLBF, 0);
  fail(pen_session_open(&LIBRARY_OBJECT(LIBRARY), (const char *const *)argv + 7, &session, message),
       message);
  const uint64_t samples = pen_session_samples(session, PEN_SESSION_STEP);
  const uint16_t *tokens = read_tokens(argv[1]);
  struct input inputs[] = {input_of(argv[3], samples, strtoull(argv[2], NULL, 10), 0),
                           input_of(argv[4], samples, strtoull(argv[2], NULL, 10), 1)};
  struct pen_samples given[2];
  char *more;
  const uint64_t steps = strtoull(argv[5], &more, 10);
  for (uint64_t s = 0; s < steps; s++) {
    for (int i = 0; i < 2; i++) {
      fill(&inputs[i], tokens, s * samples);
      given[i] = inputs[i].samples;
      given[i].dim = inputs[i].dim;
    }
    const int status = pen_session_step(session, given, 2, &step);
    if (status == DIFFERS && strchr(more, 'c') != NULL) {
      fprintf(stderr, "%s\n", pen_session_message(session));
      continue;
    }
    fail(status, pen_session_message(session));
    ask_more(session, given, more);
    printf("%.17g %.17g\n", step.loss, step.grad_norm);
  }
  if (argv[6][0] != '\0') {
    fail(pen_session_save(session, argv[6]), pen_session_message(session));
  }
  if (strchr(more, 'l') != NULL) {
    fail(pen_session_load(session, argv[6]), pen_session_message(session));
    evaluate(session, given);
  }
  pen_session_close(session);
  return 0;
}
