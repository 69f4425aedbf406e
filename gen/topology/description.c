/* description.c: reads the description of a model (see description.h).
 *
 * What its ops mean is of no concern here: gen/families/described.c matches them with the rows of
 * ops.def. Units are counted, so that each layer has its prefix; a weight is found by its name, in
 * which the number of a layer stands for `*`. */
#include "gen/topology/description.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <nettle/sha2.h>

#include "base/json_text.h"
#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/description_inputs.h"
#include "gen/topology/description_json.h"
#include "gen/topology/description_program.h"
#include "gen/topology/description_shares.h"
#include "runtime/plan/plan.h"

/* Bytes of names besides letters and digits. */
#define OF_WEIGHTS "_.-*"

enum {
  WEIGHTS_MAX = 16384,
  LAYERS_MAX = 8192,
  FORWARD_OPS_MAX = 1 << 20,
  SEQUENCE_MAX = 1 << 20,
  ELEMENTS_BITS = 40
};
#define INITIAL_MAX 1e6

static bool has_attribute(const struct pen_described_op *op,
                          const struct pen_described_attribute *wanted) {
  for (size_t a = 0; a < op->attribute_count; a++)
    if (strcmp(op->attribute[a].name, wanted->name) == 0)
      return op->attribute[a].value == wanted->value;
  return false;
}

bool pen_described_same_numbers(const struct pen_described_op *a,
                                const struct pen_described_op *b) {
  if (a->attribute_count != b->attribute_count || a->step_count != b->step_count) return false;
  for (size_t n = 0; n < a->attribute_count; n++)
    if (!has_attribute(b, &a->attribute[n])) return false;
  for (size_t n = 0; n < a->step_count; n++) {
    const struct pen_described_step *x = &a->step[n], *y = &b->step[n];
    if (strcmp(x->name, y->name) != 0 || x->count != y->count ||
        memcmp(x->argument, y->argument, x->count * sizeof *x->argument) != 0)
      return false;
  }
  return true;
}

const char *pen_description_place(const struct pen_described_kind *kind,
                                  const struct pen_described_op *op) {
  if (!op) return pen_text("unit %s", kind->name);
  return pen_text("unit %s, op %zu, %s%s", kind->name, (size_t)(op - kind->op), op->row,
                  op->line ? pen_text(" (%s)", op->line) : "");
}

void pen_description_fail(const struct pen_description *d, const struct pen_described_kind *kind,
                          const struct pen_described_op *op, const char *format, ...) {
  char reason[PEN_MESSAGE_BYTES];
  va_list list;
  va_start(list, format);
  vsnprintf(reason, sizeof reason, format, list);
  va_end(list);
  pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s: %s", d->path, pen_description_place(kind, op), reason);
}

const struct pen_described_weight *pen_described_weight_find(const struct pen_description *d,
                                                             const char *name) {
  for (const struct pen_described_weight *weight = d->weight; weight < d->weight + d->weight_count;
       weight++) {
    const char *at = name, *pattern = weight->name;
    if (weight->tied && strcmp(weight->tied, name) == 0) return weight;
    while (*pattern &&
           (*pattern == '*' ? isdigit((unsigned char)*at) || *at == '*' : *pattern == *at)) {
      while (*pattern == '*' && isdigit((unsigned char)at[1])) at++;
      at++, pattern++;
    }
    if (*at == 0 && *pattern == 0) return weight;
  }
  return NULL;
}

/* ---- weights ---- */

/* An object with that key alone: its number, if that is within the limits. */
static bool take_number(const json_t *from, const char *key, double least, double most,
                        double *number) {
  const json_t *value = json_object_get(from, key);
  if (json_object_size(from) != 1 || !json_is_number(value)) return false;
  *number = json_number_value(value);
  return *number >= least && *number <= most;
}

static void read_initial(const struct pen_description *d, const char *place, const json_t *from,
                         struct pen_described_weight *weight) {
  if (pen_description_is(from, "zeros"))
    weight->initial = PEN_INITIAL_ZEROS;
  else if (pen_description_is(from, "ones"))
    weight->initial = PEN_INITIAL_ONES;
  else if (pen_description_is(from, "given"))
    weight->initial = PEN_INITIAL_GIVEN;
  else if (take_number(from, "normal", 0, INITIAL_MAX, &weight->deviation))
    weight->initial = PEN_INITIAL_NORMAL;
  else if (take_number(from, "constant", -INITIAL_MAX, INITIAL_MAX, &weight->deviation))
    weight->initial = PEN_INITIAL_CONSTANT;
  else
    pen_description_fail_at(d->path, place, from,
                            "\"zeros\", \"ones\", \"given\", {\"normal\": DEVIATION} or "
                            "{\"constant\": NUMBER}, of at most 1e6");
}

static struct pen_described_weight read_weight(const struct pen_description *d, size_t index,
                                               const json_t *from) {
  const char *place = pen_text("weights[%zu]", index);
  struct pen_described_weight weight = {0};
  pen_description_keys(d->path, place, pen_description_object(d->path, place, from),
                       "name shape initial tied");
  const json_t *shape = json_object_get(from, "shape"), *tied = json_object_get(from, "tied");
  weight.name = pen_description_name(d->path, pen_text("%s.name", place),
                                     json_object_get(from, "name"), OF_WEIGHTS, false);
  const char *extents = pen_text("%s.shape", place);
  weight.dim_count = (uint32_t)json_array_size(shape);
  if (weight.dim_count < 1 || weight.dim_count > PEN_FILE_DIMS_MAX)
    pen_description_fail_at(d->path, extents, shape, "a list of one to four extents");
  weight.elements = 1;
  for (uint32_t k = 0; k < weight.dim_count; k++) {
    weight.dim[k] = pen_description_count(d->path, pen_text("%s[%u]", extents, k),
                                          json_array_get(shape, k), 1, PEN_DESCRIBED_EXTENT_MAX);
    if (weight.elements > (1ULL << ELEMENTS_BITS) / weight.dim[k])
      pen_description_fail_at(d->path, extents, shape, "at most 2^40 elements");
    weight.elements *= weight.dim[k];
  }
  read_initial(d, pen_text("%s.initial", place), json_object_get(from, "initial"), &weight);
  if (tied)
    weight.tied = pen_description_name(d->path, pen_text("%s.tied", place), tied,
                                       PEN_DESCRIBED_NAME_BYTES, false);
  return weight;
}

bool pen_described_weight_view(const struct pen_described_weight *weight, int extent_count,
                               uint64_t dim[PEN_OPERAND_EXTENTS]) {
  uint64_t wide[PEN_FILE_DIMS_MAX];
  int count = 0;
  for (uint32_t k = 0; k < weight->dim_count; k++)
    if (weight->dim[k] > 1) wide[count++] = weight->dim[k];
  dim[0] = extent_count == 1 ? weight->elements : count == 2 ? wide[0] : 1;
  dim[1] = extent_count == 1 ? 0 : count > 0 ? wide[count - 1] : 1;
  if (weight->dim_count != (uint32_t)extent_count)
    return extent_count == 1 || (extent_count == 2 && weight->dim_count > 1 && count <= 2);
  memcpy(dim, weight->dim, (size_t)extent_count * sizeof *dim);
  return true;
}

static void read_weights(struct pen_description *d, const json_t *list) {
  if (json_array_size(list) > WEIGHTS_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: weights: at most %d, not %zu; h.*.w stands for all layers",
             d->path, WEIGHTS_MAX, json_array_size(list));
  d->weight = pen_new(json_array_size(list) + 1, sizeof *d->weight);
  for (size_t i = 0; i < json_array_size(list); i++) {
    struct pen_described_weight *weight = &d->weight[i];
    *weight = read_weight(d, i, json_array_get(list, i));
    const char *place = pen_text("weights[%zu]", i);
    if (pen_described_weight_find(d, weight->name) ||
        (weight->tied && pen_described_weight_find(d, weight->tied)))
      pen_description_fail_at(d->path, place, json_array_get(list, i), "a name of its own");
    if (weight->tied && (d->tied || strchr(weight->name, '*')))
      pen_description_fail_at(d->path, pen_text("%s.tied", place),
                              json_object_get(json_array_get(list, i), "tied"),
                              "of one weight at most, which is no layer's");
    if (weight->tied) d->tied = weight;
    d->weight_count++;
  }
}

/* ---- kinds and their ops ---- */

static void read_attributes(const struct pen_description *d, const char *place, const json_t *from,
                            struct pen_described_op *op) {
  pen_description_object(d->path, place, from);
  op->attribute = pen_new(json_object_size(from) + 1, sizeof *op->attribute);
  for (void *at = json_object_iter((json_t *)from); at;
       at = json_object_iter_next((json_t *)from, at)) {
    const json_t *value = json_object_iter_value(at);
    json_t *key = json_string(json_object_iter_key(at));
    const char *name = pen_description_name(d->path, place, key, "_", false);
    json_decref(key);
    if (strcmp(name, "program") == 0 && json_is_array(value))
      pen_description_program(d->path, pen_text("%s.%s", place, name), value, op);
    else if (!json_is_number(value))
      pen_description_fail_at(d->path, pen_text("%s.%s", place, name), value, "a number");
    op->attribute[op->attribute_count++] =
        (struct pen_described_attribute){name, json_number_value(value), json_is_integer(value)};
  }
}

/* Names of values: of outputs, or of operands, which may be weights or absent. */
static const char **read_names(const struct pen_description *d, const char *place,
                               const json_t *list, bool may_be_absent) {
  const size_t count = json_array_size(pen_description_list(d->path, place, list));
  const char **name = pen_new(count + 1, sizeof *name);
  for (size_t i = 0; i < count; i++) {
    const json_t *one = json_array_get(list, i);
    if (may_be_absent && json_is_null(one)) continue;
    name[i] = pen_description_name(d->path, pen_text("%s[%zu]", place, i), one,
                                   may_be_absent ? OF_WEIGHTS : PEN_DESCRIBED_NAME_BYTES, false);
  }
  return name;
}

static void read_op(const struct pen_description *d, const char *place, const json_t *from,
                    struct pen_described_op *op) {
  enum { ROW, OPERANDS, ATTRIBUTES, OUTPUTS, LINE, PARTS };
  const size_t parts = json_array_size(from);
  if (parts != LINE && parts != PARTS)
    pen_description_fail_at(d->path, place, from,
                            "[ROW, [operands], {attributes}, [outputs]], and perhaps a line");
  op->row = pen_description_name(d->path, place, json_array_get(from, ROW), "_", false);
  const json_t *operands = json_array_get(from, OPERANDS), *outputs = json_array_get(from, OUTPUTS),
               *line = json_array_get(from, LINE);
  op->operand = read_names(d, pen_text("%s[1]", place), operands, true);
  op->operand_count = json_array_size(operands);
  read_attributes(d, pen_text("%s[2]", place), json_array_get(from, ATTRIBUTES), op);
  const char **output = read_names(d, pen_text("%s[3]", place), outputs, false);
  op->output_count = json_array_size(outputs);
  if (op->output_count < 1 || op->output_count > PEN_DESCRIBED_OUTPUTS_MAX)
    pen_description_fail_at(d->path, pen_text("%s[3]", place), outputs, "from 1 to 4 names");
  memcpy(op->output, output, op->output_count * sizeof *output);
  if (line && !json_is_string(line))
    pen_description_fail_at(d->path, pen_text("%s[4]", place), line, "a text, \"model.py:41\"");
  char shown[PEN_SHOWN_BYTES];
  if (line) op->line = pen_text("%s", pen_shown(shown, json_string_value(line)));
}

/* What a kind takes: nothing, or one value of (batch, sequence, width). */
static void read_takes(const struct pen_description *d, const char *place, const json_t *list,
                       struct pen_described_kind *kind) {
  const json_t *one = json_array_get(list, 0), *shape = json_object_get(one, "shape");
  const size_t extents = json_array_size(shape);
  if (json_array_size(pen_description_list(d->path, place, list)) == 0) return;
  if (json_array_size(list) > 1) pen_description_fail_at(d->path, place, list, "one value at most");
  pen_description_keys(d->path, place, pen_description_object(d->path, place, one), "name shape");
  kind->takes = pen_description_name(d->path, pen_text("%s.name", place),
                                     json_object_get(one, "name"), PEN_DESCRIBED_NAME_BYTES, false);
  const size_t first = pen_description_tokens(d, shape);
  if (first == 0 || first >= extents)
    pen_description_fail_at(d->path, pen_text("%s.shape", place), shape,
                            "[\"batch\", \"sequence\", WIDTH]");
  kind->width = 1;
  for (size_t k = first; k < extents; k++)
    kind->width *=
        pen_description_count(d->path, pen_text("%s.shape[%zu]", place, k),
                              json_array_get(shape, k), 1, PEN_DESCRIBED_EXTENT_MAX / kind->width);
}

static void read_kind(const struct pen_description *d, const char *name, const json_t *from,
                      struct pen_described_kind *kind) {
  const char *place = pen_text("kinds.%s", name);
  pen_description_keys(d->path, place, pen_description_object(d->path, place, from),
                       "takes gives ops");
  kind->name = name;
  read_takes(d, pen_text("%s.takes", place), json_object_get(from, "takes"), kind);
  const json_t *gives = json_object_get(from, "gives"), *ops = json_object_get(from, "ops");
  const char **given = read_names(d, pen_text("%s.gives", place), gives, false);
  if (json_array_size(gives) > 1)
    pen_description_fail_at(d->path, pen_text("%s.gives", place), gives, "one value at most");
  kind->gives = *given;
  place = pen_text("%s.ops", place);
  kind->op_count = json_array_size(pen_description_list(d->path, place, ops));
  if (kind->op_count < 1 || kind->op_count > PEN_DESCRIBED_OPS_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: %s: a list of 1 to %d ops, not of %zu", d->path, place,
             PEN_DESCRIBED_OPS_MAX, kind->op_count);
  kind->op = pen_new(kind->op_count, sizeof *kind->op);
  for (size_t i = 0; i < kind->op_count; i++)
    read_op(d, pen_text("%s[%zu]", place, i), json_array_get(ops, i), &kind->op[i]);
}

static void read_kinds(struct pen_description *d, const json_t *object) {
  pen_description_object(d->path, "kinds", object);
  d->kind = pen_new(json_object_size(object) + 1, sizeof *d->kind);
  for (void *at = json_object_iter((json_t *)object); at;
       at = json_object_iter_next((json_t *)object, at)) {
    json_t *key = json_string(json_object_iter_key(at));
    const char *name = pen_description_name(d->path, "kinds", key, PEN_DESCRIBED_NAME_BYTES, false);
    json_decref(key);
    read_kind(d, name, json_object_iter_value(at), &d->kind[d->kind_count++]);
  }
}

/* ---- units ---- */

/* Whether the last part of a prefix is a number: "h.3.". */
static bool is_numbered(const char *prefix) {
  size_t end = strlen(prefix);
  if (end < 2 || prefix[--end] != '.') return false;
  size_t first = end;
  while (first > 0 && isdigit((unsigned char)prefix[first - 1])) first--;
  return first < end && (first == 0 || prefix[first - 1] == '.');
}

static const struct pen_described_kind *find_kind(const struct pen_description *d,
                                                  const char *place, const json_t *name) {
  const char *names = "";
  for (size_t k = 0; k < d->kind_count; k++) {
    if (pen_description_is(name, d->kind[k].name)) return &d->kind[k];
    names = pen_text("%s%s%s", names, k ? ", " : "", d->kind[k].name);
  }
  pen_description_fail_at(d->path, place, name, pen_text("one of the kinds: %.400s", names));
}

/* How many units before this entry have a number after the prefix: it continues theirs. */
static uint64_t counted_before(const json_t *list, size_t index, const char *prefix) {
  uint64_t count = 0;
  for (size_t i = 0; i < index; i++) {
    const json_t *other = json_array_get(list, i), *number = json_object_get(other, "count");
    if (number && pen_description_is(json_object_get(other, "prefix"), prefix))
      count += (uint64_t)json_integer_value(number);
  }
  return count;
}

static void add_unit(struct pen_description *d, const struct pen_described_kind *kind,
                     const char *prefix) {
  PEN_RESERVE(d->unit, d->unit_count + 1);
  const uint32_t layer = is_numbered(prefix) ? d->layer_count++ : PEN_NONE;
  d->unit[d->unit_count++] = (struct pen_described_unit){kind, prefix, layer};
}

static void read_unit(struct pen_description *d, const json_t *list, size_t index) {
  const char *place = pen_text("units[%zu]", index);
  const json_t *from = pen_description_object(d->path, place, json_array_get(list, index)),
               *prefix = json_object_get(from, "prefix"), *count = json_object_get(from, "count");
  pen_description_keys(d->path, place, from, "kind prefix count");
  const char *text = pen_description_name(d->path, pen_text("%s.prefix", place), prefix,
                                          PEN_DESCRIBED_NAME_BYTES, true);
  const struct pen_described_kind *kind =
      find_kind(d, pen_text("%s.kind", place), json_object_get(from, "kind"));
  if (*text && text[strlen(text) - 1] != '.')
    pen_description_fail_at(d->path, pen_text("%s.prefix", place), prefix,
                            "nothing, or a text that ends with a point");
  if (!count) {
    add_unit(d, kind, text);
    return;
  }
  const uint64_t units = pen_description_count(d->path, pen_text("%s.count", place), count, 1,
                                               LAYERS_MAX),
                 first = counted_before(list, index, text);
  for (uint64_t n = first; n < first + units; n++)
    add_unit(d, kind, pen_text("%s%llu.", text, (unsigned long long)n));
}

/* Without numbers each unit with a prefix is a layer. */
static void count_named(struct pen_description *d) {
  for (size_t u = 0; u < d->unit_count; u++)
    if (*d->unit[u].prefix) d->unit[u].layer = d->layer_count++;
}

static void read_units(struct pen_description *d, const json_t *list) {
  size_t ops = 0;
  pen_description_list(d->path, "units", list);
  for (size_t i = 0; i < json_array_size(list) && d->layer_count <= LAYERS_MAX; i++)
    read_unit(d, list, i);
  if (d->layer_count == 0) count_named(d);
  for (size_t u = 0; u < d->unit_count; u++) ops += d->unit[u].kind->op_count;
  if (d->layer_count < 1 || d->layer_count > LAYERS_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY,
             "%s: units: from 1 to %d layers, which are the units with a count or a prefix that "
             "ends with a number, or where there are none all with a prefix; there are %u",
             d->path, LAYERS_MAX, d->layer_count);
  if (ops > FORWARD_OPS_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: units: at most %d ops in all, not %zu", d->path,
             FORWARD_OPS_MAX, ops);
}

/* Each unit but the first takes a value, and each but the last gives one. */
static void check_units(const struct pen_description *d) {
  for (size_t u = 0; u < d->unit_count; u++) {
    const struct pen_described_kind *kind = d->unit[u].kind;
    const bool takes = u > 0, gives = u + 1 < d->unit_count;
    if (!takes == !kind->takes && !gives == !kind->gives) continue;
    const bool wrong_takes = !takes != !kind->takes;
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: unit %s, number %zu of %zu, must %s %s value", d->path,
             kind->name, u + 1, d->unit_count, wrong_takes ? "take" : "give",
             (wrong_takes ? takes : gives) ? "one" : "no");
  }
}

/* ---- the file ---- */

/* The SHA-256 of the content: without `source` and the lines of ops, with sorted keys. */
static void digest_content(struct pen_description *d, const json_t *root) {
  json_t *copy = json_deep_copy(root), *kind;
  const char *name;
  json_object_del(copy, "source");
  json_object_foreach(json_object_get(copy, "kinds"), name, kind) {
    json_t *ops = json_object_get(kind, "ops");
    for (size_t i = 0; i < json_array_size(ops); i++) json_array_remove(json_array_get(ops, i), 4);
  }
  char *text = json_dumps(copy, JSON_SORT_KEYS | JSON_COMPACT);
  struct sha256_ctx hash;
  sha256_init(&hash);
  if (text) sha256_update(&hash, strlen(text), (const uint8_t *)text);
  sha256_digest(&hash, sizeof d->digest, d->digest);
  free(text);
  json_decref(copy);
}

static void read_config(struct pen_description *d, const json_t *config) {
  if (!config) return;
  char *text = pen_json_text(pen_description_object(d->path, "config", config));
  if (text == NULL) pen_stop(PEN_EXIT_INTERNAL, "no memory for config.json");
  d->config = pen_text("%s", text);
  free(text);
}

static void read_loss_of(struct pen_description *d, const json_t *value) {
  d->loss_of_microbatch = pen_description_is(value, "microbatch");
  if (value && !(d->loss_of_microbatch && d->share_count > 0))
    pen_description_fail_at(d->path, "loss_of", value, "\"microbatch\", with a list shares");
}

struct pen_description *pen_description_read(const char *path) {
  struct pen_description *d = pen_new(1, sizeof *d);
  json_t *root = pen_description_load(path);
  const json_t *version = json_object_get(root, "penstock_model"),
               *source = json_object_get(root, "source"),
               *sequence = json_object_get(root, "sequence"),
               *logits = json_object_get(root, "logits");
  d->path = path;
  d->family = pen_new(1, sizeof *d->family);
  d->pointwise = pen_new(1, sizeof *d->pointwise);
  if (!json_is_object(root))
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: an object with the key penstock_model", path);
  if (!json_is_integer(version) || json_integer_value(version) != PEN_DESCRIPTION_VERSION)
    pen_description_fail_at(path, "penstock_model", version,
                            pen_text("the version of the format, %d", PEN_DESCRIPTION_VERSION));
  pen_description_keys(
      path, "", root,
      "penstock_model source sequence config inputs shares loss_of weights kinds units logits");
  if (source && !json_is_string(source)) pen_description_fail_at(path, "source", source, "a text");
  if (sequence)
    d->sequence = (int64_t)pen_description_count(path, "sequence", sequence, 1, SEQUENCE_MAX);
  read_config(d, json_object_get(root, "config"));
  if (logits)
    d->logits = pen_description_name(path, "logits", logits, PEN_DESCRIBED_NAME_BYTES, false);
  pen_description_read_inputs(
      d, pen_description_list(path, "inputs", json_object_get(root, "inputs")));
  pen_description_read_shares(d, json_object_get(root, "shares"));
  read_loss_of(d, json_object_get(root, "loss_of"));
  read_weights(d, pen_description_list(path, "weights", json_object_get(root, "weights")));
  read_kinds(d, json_object_get(root, "kinds"));
  read_units(d, json_object_get(root, "units"));
  check_units(d);
  digest_content(d, root);
  json_decref(root);
  return d;
}
