/* description_shares.c: the shares of the losses of a description (see description_shares.h). */
#include "gen/topology/description_shares.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/message.h"
#include "gen/base/arena.h"
#include "gen/base/error.h"
#include "gen/topology/description_inputs.h"
#include "gen/topology/description_json.h"

static const struct {
  const char *text;
  bool of_input;
} kinds[PEN_SHARE_KINDS] = {
#define PEN_SHARE(name, text, of_input, meaning) {text, of_input},
#include "runtime/plan/shares.def"
};

static uint8_t read_over(const struct pen_description *d, const char *place, const json_t *value) {
  const char *all = "";
  for (int n = 0; n < PEN_SHARE_KINDS; n++) {
    if (pen_description_is(value, kinds[n].text)) return (uint8_t)n;
    all = pen_text("%s%s\"%s\"", all,
                   n == 0                    ? ""
                   : n + 1 < PEN_SHARE_KINDS ? ", "
                                             : " or ",
                   kinds[n].text);
  }
  pen_description_fail_at(d->path, place, value, all);
}

/* Whether data have what the share is over: sums are of tensors with names, targets are ids. */
static bool serves(const struct pen_described_input *input, uint8_t over) {
  static const bool ids[PEN_INPUT_DTYPES] = {
#define PEN_INPUT_DTYPE(name, text, also, ids, values) ids,
#include "runtime/plan/inputs.def"
  };
  if (over == PEN_SHARE_SUM) return input->from == PEN_SOURCE_NAME;
  return input->from == PEN_SOURCE_TARGETS || (input->from == PEN_SOURCE_NAME && ids[input->dtype]);
}

static uint32_t read_input(const struct pen_description *d, const char *place, const json_t *value,
                           uint8_t over) {
  if (!value && !kinds[over].of_input) return PEN_NONE;
  for (uint32_t i = 0; kinds[over].of_input && i < d->input_count; i++)
    if (pen_description_is(value, d->input[i].name) && serves(&d->input[i], over)) return i;
  pen_description_fail_at(d->path, place, value,
                          !kinds[over].of_input   ? "none, of samples"
                          : over == PEN_SHARE_SUM ? "an input of the list, by name"
                                                  : "the targets, or an input of i32, i64 or u8");
}

/* A number of the share; `missing` without one. */
static double read_number(const struct pen_description *d, const char *place, const json_t *value,
                          double missing, bool may_be_negative) {
  const double number = json_number_value(value);
  if (!value) return missing;
  if (!json_is_number(value) || !(fabs(number) <= (double)FLT_MAX) ||
      !(number > 0 || (may_be_negative && number < 0)))
    pen_description_fail_at(d->path, place, value,
                            may_be_negative ? "a number that is not 0, of at most 3.4e38"
                                            : "a number above 0, of at most 3.4e38");
  return number;
}

static void read_share(struct pen_description *d, const char *place, const json_t *from) {
  pen_description_keys(d->path, place, pen_description_object(d->path, place, from),
                       "name over input factor least");
  const json_t *name = json_object_get(from, "name");
  struct pen_described_share share = {
      .name = pen_description_name(d->path, pen_text("%s.name", place), name,
                                   PEN_DESCRIBED_NAME_BYTES, false),
      .over = read_over(d, pen_text("%s.over", place), json_object_get(from, "over"))};
  share.input =
      read_input(d, pen_text("%s.input", place), json_object_get(from, "input"), share.over);
  share.factor =
      read_number(d, pen_text("%s.factor", place), json_object_get(from, "factor"), 1, true);
  share.least =
      read_number(d, pen_text("%s.least", place), json_object_get(from, "least"), 0, false);
  for (size_t i = 0; i < d->share_count; i++)
    if (strcmp(d->share[i].name, share.name) == 0)
      pen_description_fail_at(d->path, pen_text("%s.name", place), name, "a name of its own");
  d->share[d->share_count++] = share;
}

void pen_description_read_shares(struct pen_description *d, const json_t *list) {
  if (!list) return;
  const size_t count = json_array_size(pen_description_list(d->path, "shares", list));
  if (count < 1 || count > PEN_SHARES_MAX)
    pen_stop(PEN_EXIT_TOPOLOGY, "%s: shares: from 1 to %d, not %zu", d->path, PEN_SHARES_MAX,
             count);
  d->share = pen_new(count, sizeof *d->share);
  for (size_t i = 0; i < count; i++)
    read_share(d, pen_text("shares[%zu]", i), json_array_get(list, i));
}
