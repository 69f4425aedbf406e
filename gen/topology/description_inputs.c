/* description_inputs.c: the inputs of a description (see description_inputs.h). */
#include "gen/topology/description_inputs.h"

#include <string.h>

#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/description_json.h"

const char *pen_described_source_text(enum pen_described_source source) {
  static const char *const text[] = {"tokens", "targets", "starts", "its name"};
  return text[source];
}

/* ---- shapes ---- */

size_t pen_description_tokens(const struct pen_description *d, const json_t *shape) {
  if (!pen_description_is(json_array_get(shape, 0), "batch")) return 0;
  if (pen_description_is(json_array_get(shape, 1), "sequence")) return 2;
  return d->sequence == 1 ? 1 : 0;
}

/* The extents of a sample: of ["batch", "sequence", 48] the last two. */
static void read_shape(const struct pen_description *d, const char *place, const json_t *shape,
                       struct pen_described_input *input) {
  const size_t extents = json_array_size(shape);
  if (!pen_description_is(json_array_get(shape, 0), "batch") || extents > PEN_INPUT_DIMS_MAX + 1)
    pen_description_fail_at(
        d->path, place, shape,
        pen_text("[\"batch\", \"sequence\", ...] or [\"batch\", ...], with at most %d extents",
                 PEN_INPUT_DIMS_MAX + 1));
  const bool has_sequence = pen_description_is(json_array_get(shape, 1), "sequence");
  input->has_tokens = pen_description_tokens(d, shape) != 0;
  input->dim_count = (uint32_t)extents - 1;
  input->width = 1;
  for (size_t k = has_sequence ? 1 : 0; k < input->dim_count; k++) {
    input->dim[k] =
        pen_description_count(d->path, pen_text("%s[%zu]", place, k + 1),
                              json_array_get(shape, k + 1), 1, PEN_DESCRIBED_EXTENT_MAX);
    if (input->width > PEN_DESCRIBED_EXTENT_MAX / input->dim[k])
      pen_description_fail_at(
          d->path, place, shape,
          pen_text("at most %d elements for each token", PEN_DESCRIBED_EXTENT_MAX));
    input->width *= input->dim[k];
  }
}

/* ---- an input ---- */

static uint8_t read_dtype(const struct pen_description *d, const char *place, const json_t *value) {
  static const char *const text[PEN_INPUT_DTYPES] = {
#define PEN_INPUT_DTYPE(name, text, also, ids, values) text,
#include "runtime/plan/inputs.def"
  };
  const char *all = "";
  for (int n = 0; n < PEN_INPUT_DTYPES; n++) {
    if (pen_description_is(value, text[n])) return (uint8_t)n;
    all = pen_text("%s%s\"%s\"", all,
                   n == 0                     ? ""
                   : n + 1 < PEN_INPUT_DTYPES ? ", "
                                              : " or ",
                   text[n]);
  }
  pen_description_fail_at(d->path, place, value, all);
}

static enum pen_described_source read_source(const struct pen_description *d, const char *place,
                                             const json_t *value) {
  if (!value) return PEN_SOURCE_NAME;
  for (int s = 0; s < PEN_SOURCE_NAME; s++)
    if (pen_description_is(value, pen_described_source_text((enum pen_described_source)s)))
      return (enum pen_described_source)s;
  pen_description_fail_at(d->path, place, value, "\"tokens\", \"targets\" or \"starts\"");
}

static struct pen_described_input read_input(const struct pen_description *d, const char *place,
                                             const json_t *from) {
  pen_description_keys(d->path, place, pen_description_object(d->path, place, from),
                       "name dtype shape from");
  const json_t *shape = json_object_get(from, "shape"), *dtype = json_object_get(from, "dtype");
  struct pen_described_input input = {
      .name = pen_description_name(d->path, pen_text("%s.name", place),
                                   json_object_get(from, "name"), PEN_DESCRIBED_NAME_BYTES, false),
      .from = read_source(d, pen_text("%s.from", place), json_object_get(from, "from")),
      .dtype = read_dtype(d, pen_text("%s.dtype", place), dtype)};
  read_shape(d, pen_text("%s.shape", place), shape, &input);
  if (input.from == PEN_SOURCE_NAME) return input;
  if (input.dtype != PEN_INPUT_I32)
    pen_description_fail_at(d->path, pen_text("%s.dtype", place), dtype,
                            "\"i32\", with a \"from\"");
  if (json_array_size(shape) != 2 || input.dim[0] != 0)
    pen_description_fail_at(d->path, pen_text("%s.shape", place), shape,
                            "[\"batch\", \"sequence\"], with a \"from\"");
  return input;
}

/* ---- the list ---- */

static bool is_of_token_file(const struct pen_described_input *input) {
  return input->from == PEN_SOURCE_TOKENS || input->from == PEN_SOURCE_TARGETS;
}

/* Data are of one kind: a token file, or tensors with names. */
static void check_beside(const struct pen_description *d, size_t index, size_t other,
                         const json_t *from) {
  const struct pen_described_input *a = &d->input[other], *b = &d->input[index];
  const char *place = pen_text("inputs[%zu]", index);
  if (strcmp(a->name, b->name) == 0 || (a->from == b->from && a->from != PEN_SOURCE_NAME))
    pen_description_fail_at(d->path, place, from, "a name and a \"from\" of its own");
  if ((is_of_token_file(a) && b->from == PEN_SOURCE_NAME) ||
      (is_of_token_file(b) && a->from == PEN_SOURCE_NAME))
    pen_description_fail_at(
        d->path, place, from,
        "all inputs with \"from\", of a token file, or none but starts, of tensors by name");
}

void pen_description_read_inputs(struct pen_description *d, const json_t *list) {
  if (json_array_size(list) > PEN_DESCRIBED_INPUTS_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: inputs: at most %d, not %zu", d->path,
             PEN_DESCRIBED_INPUTS_MAX, json_array_size(list));
  d->input = pen_new(json_array_size(list) + 1, sizeof *d->input);
  for (size_t i = 0; i < json_array_size(list); i++) {
    d->input[i] = read_input(d, pen_text("inputs[%zu]", i), json_array_get(list, i));
    for (size_t other = 0; other < i; other++) check_beside(d, i, other, json_array_get(list, i));
    d->input_count++;
  }
}
