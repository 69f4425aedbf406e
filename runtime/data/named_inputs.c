/* named_inputs.c: inputs of a safetensors file by their names (see named_inputs.h). */
#include "runtime/data/named_inputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/check.h"
#include "runtime/base/input_text.h"
#include "runtime/base/mailbox.h"
#include "runtime/base/safetensors_header.h"

/* The dtypes of a file that serve for each dtype of the plan. */
static const uint8_t serving[PEN_INPUT_DTYPES][2] = {
#define PEN_INPUT_DTYPE(name, text, also, ids, values) {PEN_STORED_##name, PEN_STORED_##also},
#include "runtime/plan/inputs.def"
};

/* ---- opening ---- */

/* "idx, targets" */
static const char *names_text(char text[PEN_MESSAGE_BYTES], const struct pen_plan *plan) {
  size_t used = 0;
  text[0] = '\0';
  for (uint32_t i = 0; i < plan->input_count && used < PEN_SHOWN_BYTES; i++) {
    used += (size_t)snprintf(text + used, PEN_MESSAGE_BYTES - used, "%s%s", i > 0 ? ", " : "",
                             plan->inputs[i].name);
  }
  return text;
}

/* The extents of a sample, and their product. */
static uint64_t sample_dims(const struct pen_input *input, uint64_t sequence,
                            uint64_t dim[PEN_INPUT_DIMS_MAX]) {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < input->dim_count; i++) {
    dim[i] = input->dim[i] == 0 ? sequence : input->dim[i];
    elements *= dim[i];
  }
  return elements;
}

const char *pen_named_wanted_text(char text[2 * PEN_SHOWN_BYTES], const struct pen_input *input,
                                  uint64_t sequence) {
  uint64_t dim[PEN_INPUT_DIMS_MAX];
  const uint8_t *serves = serving[input->dtype];
  sample_dims(input, sequence, dim);
  int used = snprintf(text, PEN_SHOWN_BYTES, "%s%s%s [samples", pen_stored_dtypes[serves[0]].name,
                      serves[1] == serves[0] ? "" : " or ",
                      serves[1] == serves[0] ? "" : pen_stored_dtypes[serves[1]].name);
  for (uint32_t i = 0; i < input->dim_count; i++) {
    used += snprintf(text + used, 2 * PEN_SHOWN_BYTES - (size_t)used, ", %" PRIu64, dim[i]);
  }
  snprintf(text + used, 2 * PEN_SHOWN_BYTES - (size_t)used, "]");
  return text;
}

static bool fits(const struct pen_input *input, uint64_t sequence, const struct pen_stored *found) {
  uint64_t dim[PEN_INPUT_DIMS_MAX];
  sample_dims(input, sequence, dim);
  return (found->format == serving[input->dtype][0] || found->format == serving[input->dtype][1]) &&
         found->dim_count == input->dim_count + 1 &&
         memcmp(found->dim + 1, dim, input->dim_count * sizeof *dim) == 0;
}

static struct pen_named_input find_input(const struct pen_safetensors *header,
                                         const struct pen_input *input, uint64_t sequence,
                                         const unsigned char *file) {
  char wanted[2 * PEN_SHOWN_BYTES], has[PEN_SHOWN_BYTES];
  uint64_t dim[PEN_INPUT_DIMS_MAX];
  struct pen_stored *found = pen_safetensors_find(header, input->name);
  if (found == NULL) {
    pen_fail(PEN_EXIT_DATA, PEN_INPUT_IS_MISSING, header->path, input->name,
             pen_named_wanted_text(wanted, input, sequence));
  }
  if (!fits(input, sequence, found)) {
    pen_fail(PEN_EXIT_DATA, PEN_INPUT_IS_OTHER, header->path, input->name,
             pen_stored_dtypes[found->format].name,
             pen_safetensors_shape_text(has, found->dim_count, found->dim),
             pen_named_wanted_text(wanted, input, sequence));
  }
  found->checked = 1;
  return (struct pen_named_input){.input = input,
                                  .first = file + found->offset,
                                  .elements = sample_dims(input, sequence, dim),
                                  .stored = found->format};
}

/* All inputs have as many samples as the first. */
static uint64_t count_samples(const struct pen_safetensors *header, const struct pen_plan *plan) {
  const uint64_t count = pen_safetensors_find(header, plan->inputs[0].name)->dim[0];
  for (uint32_t i = 1; i < plan->input_count; i++) {
    const uint64_t other = pen_safetensors_find(header, plan->inputs[i].name)->dim[0];
    if (other != count) {
      pen_fail(PEN_EXIT_DATA,
               "%s: input %s: %" PRIu64 " samples, and %s has %" PRIu64 "; all inputs have as many",
               header->path, plan->inputs[i].name, other, plan->inputs[0].name, count);
    }
  }
  if (count == 0) {
    pen_fail(PEN_EXIT_DATA, "%s: it has no samples", header->path);
  }
  return count;
}

static void check_no_more(const struct pen_safetensors *header, const struct pen_plan *plan) {
  char names[PEN_MESSAGE_BYTES], shown[PEN_SHOWN_BYTES];
  for (size_t i = 0; i < header->count; i++) {
    if (!header->tensors[i].checked) {
      pen_fail(PEN_EXIT_DATA, PEN_INPUT_IS_NONE, header->path,
               pen_shown(shown, header->tensors[i].name), names_text(names, plan));
    }
  }
}

const struct pen_named_input *pen_named_inputs_open(const struct pen_plan *plan, uint64_t sequence,
                                                    const char *path, const unsigned char *file,
                                                    uint64_t bytes, uint64_t *sample_count) {
  struct pen_safetensors header = {.path = path, .fd = -1, .file_bytes = bytes};
  char names[PEN_MESSAGE_BYTES];
  if (bytes <= PEN_SAFETENSORS_PREFIX_BYTES || file[PEN_SAFETENSORS_PREFIX_BYTES] != '{') {
    pen_fail(PEN_EXIT_DATA,
             "%s: no safetensors file: the model's inputs are read by name from one: %s", path,
             names_text(names, plan));
  }
  pen_safetensors_take_prefix(&header, file);
  pen_safetensors_parse_header(&header, (const char *)file + PEN_SAFETENSORS_PREFIX_BYTES,
                               header.data_offset - PEN_SAFETENSORS_PREFIX_BYTES);
  struct pen_named_input *named =
      pen_allocate(plan->input_count, sizeof *named, "%u inputs", plan->input_count);
  for (uint32_t i = 0; i < plan->input_count; i++) {
    named[i] = find_input(&header, &plan->inputs[i], sequence, file);
  }
  check_no_more(&header, plan);
  *sample_count = count_samples(&header, plan);
  pen_safetensors_free_header(&header);
  return named;
}

/* ---- a caller's samples ---- */

/* What models read that are not described by names, in the places of their data ops; the limit is
 * that of the plan. */
static struct pen_input plain_inputs[PEN_PLAIN_INPUTS] = {
    [PEN_PLAIN_TOKENS] = {.name = "tokens", .dtype = PEN_INPUT_I32, .dim_count = 1},
    [PEN_PLAIN_TARGETS] = {.name = "targets",
                           .dtype = PEN_INPUT_I32,
                           .dim_count = 1,
                           .has_targets = true},
};

static uint32_t inputs_of(const struct pen_plan *plan, const struct pen_input **inputs) {
  plain_inputs[PEN_PLAIN_TOKENS].limit = plain_inputs[PEN_PLAIN_TARGETS].limit = plan->vocab;
  *inputs = plan->input_count > 0 ? plan->inputs : plain_inputs;
  return plan->input_count > 0 ? plan->input_count : plan->needs_tokens ? PEN_PLAIN_INPUTS : 0;
}

static void describe(struct pen_mailbox_input *to, const struct pen_input *input,
                     uint64_t sequence) {
  snprintf(to->name, sizeof to->name, "%s", input->name);
  pen_named_wanted_text(to->wanted, input, sequence);
  to->serving[0] = to->given = serving[input->dtype][0];
  to->serving[1] = serving[input->dtype][1];
  to->dim_count = input->dim_count;
  to->elements = sample_dims(input, sequence, to->dim);
  to->limit = input->limit;
  to->may_ignore = input->has_targets;
}

uint64_t pen_named_inputs_describe(const struct pen_plan *plan, uint64_t sequence,
                                   struct pen_mailbox *mailbox) {
  const struct pen_input *inputs;
  const uint32_t count = inputs_of(plan, &inputs);
  uint64_t end = pen_mailbox_aligned(sizeof *mailbox), samples = 0;
  if (count > PEN_MAILBOX_INPUTS_MAX) {
    pen_fail(PEN_EXIT_USAGE, "the model has %u inputs; a library takes at most %d", count,
             PEN_MAILBOX_INPUTS_MAX);
  }
  mailbox->input_count = count;
  for (uint32_t use = 0; use < PEN_SAMPLES_USES; use++) {
    mailbox->samples[use] = count == 0 ? 0 : mailbox->samples[use];
    samples = mailbox->samples[use] > samples ? mailbox->samples[use] : samples;
  }
  for (uint32_t i = 0; i < count; i++) {
    struct pen_mailbox_input *to = &mailbox->inputs[i];
    describe(to, &inputs[i], sequence);
    const unsigned a = pen_stored_dtypes[to->serving[0]].bytes,
                   b = pen_stored_dtypes[to->serving[1]].bytes;
    to->offset = end;
    end = pen_mailbox_aligned(end + samples * to->elements * (a > b ? a : b));
  }
  return end;
}

struct pen_named_input *pen_named_inputs_given(const struct pen_plan *plan,
                                               const struct pen_mailbox *mailbox,
                                               const unsigned char *all) {
  const struct pen_input *inputs;
  const uint32_t count = inputs_of(plan, &inputs);
  struct pen_named_input *named = pen_allocate(count + 1, sizeof *named, "%u inputs", count);
  for (uint32_t i = 0; i < count; i++) {
    named[i] = (struct pen_named_input){
        .input = &inputs[i],
        .first = all + mailbox->inputs[i].offset,
        .elements = mailbox->inputs[i].elements,
        .stored = (uint8_t)mailbox->inputs[i].given,
    };
  }
  return named;
}

void pen_named_inputs_take(struct pen_named_input *named, const struct pen_mailbox *mailbox) {
  for (uint32_t i = 0; i < mailbox->input_count; i++) {
    named[i].stored = (uint8_t)mailbox->inputs[i].given;
  }
}

/* ---- elements ---- */

static const unsigned char *element_at(const struct pen_named_input *named, uint64_t sample,
                                       uint64_t at) {
  return named->first + (sample * named->elements + at) * pen_stored_dtypes[named->stored].bytes;
}

static void copy_f32(float *to, const unsigned char *from, uint64_t count) {
  memcpy(to, from, count * sizeof *to);
}

static void copy_bf16(float *to, const unsigned char *from, uint64_t count) {
  for (uint64_t e = 0; e < count; e++) {
    const uint32_t bits = (uint32_t)from[2 * e] << 16 | (uint32_t)from[2 * e + 1] << 24;
    memcpy(&to[e], &bits, sizeof bits);
  }
}

static void copy_u8(float *to, const unsigned char *from, uint64_t count) {
  for (uint64_t e = 0; e < count; e++) {
    to[e] = from[e];
  }
}

/* How elements of each dtype are read as numbers; null: they are none. */
static void (*const copy_values[PEN_STORED_DTYPES])(float *to, const unsigned char *from,
                                                    uint64_t count) = {
    [PEN_STORED_U8] = copy_u8, [PEN_STORED_F32] = copy_f32, [PEN_STORED_BF16] = copy_bf16};

static _Noreturn void fail_id(const struct pen_named_input *named, const char *path,
                              uint64_t sample, uint64_t at, int64_t id, bool may_ignore) {
  const struct pen_input *input = named->input;
  char allowed[PEN_IDS_TEXT_BYTES];
  pen_fail(PEN_EXIT_DATA, PEN_INPUT_HAS_OTHER_ID, path, input->name, at, sample, id,
           pen_ids_text(allowed, input->limit, may_ignore));
}

void pen_named_ids(const struct pen_named_input *named, const char *path, uint64_t sample,
                   bool may_ignore, int32_t *to) {
  const unsigned char *from = element_at(named, sample, 0);
  const uint64_t step = pen_stored_dtypes[named->stored].bytes;
  const int64_t least = named->input->limit > 0 ? 0 : INT32_MIN,
                most = named->input->limit > 0 ? (int64_t)named->input->limit - 1 : INT32_MAX;
  for (uint64_t e = 0; e < named->elements; e++) {
    const int64_t id = pen_stored_dtypes[named->stored].id(from + e * step);
    if (__builtin_expect((id < least || id > most) && !(may_ignore && id == PEN_IGNORED_TARGET),
                         0)) {
      fail_id(named, path, sample, e, id, may_ignore);
    }
    to[e] = (int32_t)id;
  }
}

void pen_named_values(const struct pen_named_input *named, uint64_t sample, uint64_t at,
                      uint64_t count, float *to) {
  copy_values[named->stored](to, element_at(named, sample, at), count);
}

const struct pen_named_input *pen_named_targets(const struct pen_named_input *named,
                                                uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    if (named[i].input->has_targets) {
      return &named[i];
    }
  }
  return NULL;
}

uint64_t pen_named_count_targets(const struct pen_named_input *named, uint64_t sample) {
  const unsigned char *from = element_at(named, sample, 0);
  const uint64_t step = pen_stored_dtypes[named->stored].bytes;
  uint64_t count = 0;
  for (uint64_t e = 0; e < named->elements; e++) {
    count += pen_stored_dtypes[named->stored].id(from + e * step) != PEN_IGNORED_TARGET;
  }
  return count;
}

double pen_named_sum(const struct pen_named_input *named, uint64_t sample) {
  enum { CHUNK = 256 };
  const uint64_t step = pen_stored_dtypes[named->stored].bytes;
  const bool are_ids = copy_values[named->stored] == NULL;
  double sum = 0.0;
  for (uint64_t at = 0; at < named->elements; at += CHUNK) {
    const uint64_t count = named->elements - at < CHUNK ? named->elements - at : CHUNK;
    float chunk[CHUNK] = {0};
    if (!are_ids) {
      pen_named_values(named, sample, at, count, chunk);
    }
    for (uint64_t e = 0; e < count; e++) {
      sum += are_ids ? (double)pen_stored_dtypes[named->stored].id(element_at(named, sample, at) +
                                                                   e * step)
                     : (double)chunk[e];
    }
  }
  return sum;
}
