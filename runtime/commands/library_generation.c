/* library_generation.c: texts of the library (see library_generation.h). They are samples between
 * steps of training, of prompts and by options that the mailbox has: before the first step of a
 * generation each rank takes these from there. */
#include "runtime/commands/library_generation.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/mailbox.h"
#include "runtime/commands/generate.h"

static struct pen_options options;     /* of the draws */
static struct pen_prompt *prompt_list; /* [text_limit]: their tokens are in the mailbox */
static struct pen_prompts prompts;

bool pen_library_reads_texts(const struct pen_plan *plan) {
  return plan->needs_tokens && pen_buckets_of(plan, PEN_GENERATE).count > 0;
}

uint64_t pen_library_generation_describe(const struct pen_run *run, uint64_t begin) {
  struct pen_mailbox *mailbox = run->options->mailbox;
  const bool reads = pen_library_reads_texts(run->plan);
  mailbox->vocab = run->plan->vocab;
  mailbox->text_limit = reads ? mailbox->samples[PEN_SAMPLES_OF_STEP] : 0;
  snprintf(mailbox->no_texts, sizeof mailbox->no_texts, "%s",
           run->plan->no_texts != NULL ? run->plan->no_texts : "is no language model");
  mailbox->text_tokens = run->profile->sequence;
  mailbox->texts_offset = pen_mailbox_aligned(begin);
  mailbox->tokens_offset =
      mailbox->texts_offset + mailbox->text_limit * sizeof(struct pen_mailbox_text);
  return mailbox->tokens_offset + mailbox->text_limit * mailbox->text_tokens * sizeof(uint32_t);
}

static struct pen_mailbox_text *texts_of(const struct pen_run *run) {
  return (struct pen_mailbox_text *)(run->library->all + run->options->mailbox->texts_offset);
}

static uint32_t *tokens_of(const struct pen_run *run, uint64_t text) {
  const struct pen_mailbox *mailbox = run->options->mailbox;
  return (uint32_t *)(run->library->all + mailbox->tokens_offset) + text * mailbox->text_tokens;
}

static void take_request(const struct pen_run *run) {
  const struct pen_mailbox_generation *asked = &run->options->mailbox->generation;
  options.tokens = asked->tokens;
  options.seed = asked->seed;
  options.temperature = asked->temperature;
  options.top_k = asked->top_k;
  options.top_p = asked->top_p;
  options.min_p = asked->min_p;
  options.repetition_penalty = asked->repetition_penalty;
  options.given.end_of_text = asked->end_of_text >= 0;
  options.end_of_text = (uint64_t)asked->end_of_text;
  prompts.count = asked->text_count;
  for (uint64_t i = 0; i < prompts.count; i++) {
    prompt_list[i].token_count = texts_of(run)[i].prompt;
  }
}

static bool choose(const struct pen_run *run, struct pen_vm *vm, uint64_t step, uint32_t *bucket) {
  if (step == 0) {
    take_request(run);
  }
  return pen_sample_hooks.choose(run, vm, step, bucket);
}

static void left(const struct pen_run *run, struct pen_vm *vm) {
  const struct pen_text_list *texts = pen_generated_texts();
  (void)vm;
  for (uint64_t i = 0; i < texts->count; i++) {
    const struct pen_text *text = &texts->text[i];
    memcpy(tokens_of(run, i), text->token, text->written * sizeof *text->token);
    texts_of(run)[i].count = text->written;
  }
}

void pen_library_generation_open(struct pen_run *run) {
  const struct pen_mailbox *mailbox = run->options->mailbox;
  static struct pen_command_hooks hooks;
  struct pen_run_sampling *sampling = &run->sampling;
  options = *run->options;
  options.tokens = mailbox->text_tokens;
  options.samples = 1;
  prompt_list = pen_allocate(mailbox->text_limit, sizeof *prompt_list, "prompts");
  prompts = (struct pen_prompts){.prompt = prompt_list, .count = mailbox->text_limit};
  for (uint64_t i = 0; i < mailbox->text_limit; i++) {
    prompt_list[i] = (struct pen_prompt){.text = "", .token = tokens_of(run, i)};
  }
  hooks = pen_sample_hooks;
  hooks.choose = choose;
  hooks.left = left;
  sampling->hooks = &hooks;
  sampling->buckets = pen_buckets_of_generation(run->plan);
  pen_data_open(&sampling->data, run->plan,
                sampling->buckets.profile[sampling->buckets.count - 1]->sequence, NULL, 0,
                options.seed);
  sampling->data.window_count = 1; /* hooks read the samples instead */
  pen_generate_open(run, &sampling->buckets, &options, &prompts);
}
