/* weight_optimizer.c: the optimizer, the rate and the weight decay of each tensor.
 *
 * By default all tensors have optimizer.name and the scheduled rate, but with "muon" only matrices
 * of layers have it, and others "adamw"; those of two dimensions have optimizer.weight_decay, norm
 * gains and biases have 0 (as in nanoGPT and llm.c). A group
 * "ENDING=DECAY" of optimizer.weight_decay_groups sets the decay of the tensors whose names have
 * that ending; one of optimizer.groups sets any of the three, and its decay counts before the
 * other's. Of each list the first group that matches counts. The rate of a group is a factor of the
 * scheduled one, as lr_mult of Megatron-LM. */
#include "gen/topology/weight_optimizer.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gen/base/arena.h"
#include "gen/topology/message.h"
#include "gen/topology/value.h"

/* ---- optimizer.groups ---- */

/* What a group may set. Values are those of another setting, which they replace or multiply. */
static const struct group_setting {
  const char *name, *values_of;
} group_settings[] = {{"rate", "optimizer.weight_decay"},
                      {"weight_decay", "optimizer.weight_decay"},
                      {"name", "optimizer.name"}};
enum { GROUP_SETTINGS = sizeof group_settings / sizeof *group_settings };

/* Sets NAME=VALUE; null, or what is wrong with it. */
static const char *read_setting(struct pen_optimizer_group *group, const char *word) {
  struct pen_topology *values = pen_new(1, sizeof *values);
  const size_t bytes = strcspn(word, "=");
  int s = 0;
  while (s < GROUP_SETTINGS && (strlen(group_settings[s].name) != bytes ||
                                memcmp(group_settings[s].name, word, bytes) != 0))
    s++;
  if (s == GROUP_SETTINGS || !word[bytes])
    return pen_text("\"%s\" is none of rate=, weight_decay= and name=", word);
  const struct pen_setting *setting = pen_setting_find_path(group_settings[s].values_of);
  const struct pen_written_value value = pen_value_from_text(setting, word + bytes + 1);
  double *number = s == 0 ? &group->rate : &group->weight_decay;
  const bool is_name = setting->type == PEN_CHOICE;
  if (is_name ? group->name != PEN_UNSET : *number >= 0)
    return pen_text("%s is given twice", group_settings[s].name);
  if (!pen_value_set(values, setting, &value))
    return pen_text("%s: %s", word, pen_setting_allowed(setting));
  if (is_name)
    group->name = (int)values->optimizer_name;
  else
    *number = values->optimizer_weight_decay;
  return NULL;
}

static void add_ending(struct pen_strings *endings, const char *word) {
  PEN_RESERVE(endings->value, endings->count + 1);
  endings->value[endings->count++] = word;
}

/* The next word of a text between spaces; null: there is none. */
static const char *next_word(const char **text) {
  const char *word = *text + strspn(*text, " ");
  const size_t bytes = strcspn(word, " ");
  *text = word + bytes;
  return bytes ? pen_text("%.*s", (int)bytes, word) : NULL;
}

/* Reads "ENDING...: SETTING=VALUE..."; null, or what is wrong with it. */
static const char *read_group(struct pen_optimizer_group *group, const char *text) {
  const char *colon = strchr(text, ':'), *wrong = NULL, *word;
  *group = (struct pen_optimizer_group){.rate = -1, .weight_decay = -1, .name = PEN_UNSET};
  if (!colon) return "no endings with a colon";
  const char *endings = pen_text("%.*s", (int)(colon - text), text), *settings = colon + 1;
  while ((word = next_word(&endings))) add_ending(&group->endings, word);
  if (group->endings.count == 0) return "no endings";
  if (strspn(settings, " ") == strlen(settings)) return "no settings";
  while (!wrong && (word = next_word(&settings))) wrong = read_setting(group, word);
  return wrong;
}

static const char *group_text(const struct pen_optimizer_group *group) {
  const char *text = group->endings.value[0];
  for (size_t i = 1; i < group->endings.count; i++)
    text = pen_text("%s %s", text, group->endings.value[i]);
  text = pen_text("%s:", text);
  if (group->rate >= 0) text = pen_text("%s rate=%.17g", text, group->rate);
  if (group->weight_decay >= 0) text = pen_text("%s weight_decay=%.17g", text, group->weight_decay);
  const char *name = pen_enum_text(pen_enum_optimizer_kind, group->name);
  return name ? pen_text("%s name=%s", text, name) : text;
}

void pen_optimizer_groups_read(struct pen_topology *t) {
  const struct pen_strings *written = &t->optimizer_groups;
  struct pen_optimizer_group *groups = pen_new(written->count + 1, sizeof *groups);
  const char **texts = pen_new(written->count + 1, sizeof *texts);
  for (size_t i = 0; i < written->count; i++) {
    const char *wrong = read_group(&groups[i], written->value[i]);
    if (wrong)
      pen_topology_fail(t, "optimizer.groups",
                        "\"ENDING...: SETTING=VALUE...\": endings of tensor names, then rate=, "
                        "weight_decay= or name=; group %zu, \"%s\": %s",
                        i + 1, written->value[i], wrong);
    texts[i] = group_text(&groups[i]);
  }
  t->optimizer_group = groups;
  t->optimizer_groups = (struct pen_strings){written->count, texts};
}

bool pen_optimizer_is_used(const struct pen_topology *t, enum pen_optimizer_kind optimizer) {
  bool used = t->optimizer_name == optimizer ||
              (t->optimizer_name == PEN_OPTIMIZER_MUON && optimizer == PEN_OPTIMIZER_ADAMW);
  for (size_t i = 0; i < t->optimizer_groups.count; i++)
    used = used || t->optimizer_group[i].name == (int)optimizer;
  return used;
}

bool pen_optimizer_has_setting(const struct pen_topology *t, const struct pen_setting *setting) {
  static const struct {
    const char *name;
    enum pen_optimizer_kind optimizer;
  } own[] = {{"beta1", PEN_OPTIMIZER_ADAMW},   {"beta2", PEN_OPTIMIZER_ADAMW},
             {"epsilon", PEN_OPTIMIZER_ADAMW}, {"momentum", PEN_OPTIMIZER_SGD},
             {"nesterov", PEN_OPTIMIZER_SGD},  {"momentum", PEN_OPTIMIZER_MUON},
             {"nesterov", PEN_OPTIMIZER_MUON}, {"ns_steps", PEN_OPTIMIZER_MUON}};
  bool listed = false, used = false;
  if (strcmp(setting->group, "optimizer") != 0) return true;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (!strcmp(setting->name, own[i].name))
      listed = true, used = used || pen_optimizer_is_used(t, own[i].optimizer);
  return used || !listed;
}

/* The first group with an ending of the name; null: there is none. */
static const struct pen_optimizer_group *group_of(const struct pen_topology *t, const char *name) {
  for (size_t i = 0; i < t->optimizer_groups.count; i++) {
    const struct pen_strings *endings = &t->optimizer_group[i].endings;
    for (size_t e = 0; e < endings->count; e++)
      if (pen_ends_in(name, endings->value[e], strlen(endings->value[e])))
        return &t->optimizer_group[i];
  }
  return NULL;
}

/* ---- optimizer.weight_decay_groups ---- */

/* Whether the name has the group's ending. */
static bool has_ending(const char *group, const char *name) {
  return pen_ends_in(name, group, strcspn(group, "="));
}

static double weight_decay_of(const struct pen_topology *topology, const char *name, bool matrix) {
  const struct pen_strings *groups = &topology->optimizer_weight_decay_groups;
  for (size_t i = 0; i < groups->count; i++)
    if (has_ending(groups->value[i], name)) return strtod(strchr(groups->value[i], '=') + 1, NULL);
  return matrix ? topology->optimizer_weight_decay : 0;
}

void pen_weight_decay_check_groups(const struct pen_topology *topology) {
  const struct pen_strings *groups = &topology->optimizer_weight_decay_groups;
  for (size_t i = 0; i < groups->count; i++) {
    const char *equals = strchr(groups->value[i], '=');
    char *end = NULL;
    double decay = equals ? strtod(equals + 1, &end) : -1;
    bool number = equals && equals > groups->value[i] && strchr(".0123456789", equals[1]) &&
                  equals[1] && !*end;
    if (!number || !(fabs(decay) <= FLT_MAX))
      pen_topology_fail(
          topology, "optimizer.weight_decay_groups",
          "\"ENDING=DECAY\": an ending of tensor names and a finite number, 0 or more; not \"%s\"",
          groups->value[i]);
  }
}

/* ---- weights ---- */

/* The moments of a tensor that is trained. */
static uint32_t moments_of(const struct pen_topology *topology, int optimizer) {
  static const uint32_t most[PEN_OPTIMIZERS] = {
#define PEN_OPTIMIZER(name, text, moment, second, meaning) \
  [PEN_OPTIMIZER_##name] = ((moment) != 0) + ((second) != 0),
#include "runtime/plan/optimizer.def"
  };
  const bool without = optimizer == PEN_OPTIMIZER_SGD && !topology->optimizer_momentum;
  return without ? 0 : most[optimizer];
}

/* Only a matrix of a layer has Muon. */
static int optimizer_of(const struct pen_topology *t, const struct pen_weight *weight,
                        const struct pen_optimizer_group *group, bool in_layer) {
  const bool named = group && group->name != PEN_UNSET,
             is_muon = (named ? group->name : (int)t->optimizer_name) == PEN_OPTIMIZER_MUON;
  if (!is_muon || (in_layer && weight->dim_count == 2))
    return named ? group->name : (int)t->optimizer_name;
  if (named)
    pen_topology_fail(t, "optimizer.groups",
                      "name=muon for matrices of the layers alone; %s is none", weight->tensor);
  return PEN_OPTIMIZER_ADAMW;
}

/* What updates a router's bias, or its counts, no setting of the optimizer changes. */
static void set_own(const struct pen_topology *topology, struct pen_weight *weight) {
  const bool counts = weight->optimizer == PEN_OPTIMIZER_CHOICES;
  weight->matrix_parts = 1;
  weight->rate = counts ? 1 : topology->model_bias_update;
  weight->moment_count = counts ? moments_of(topology, PEN_OPTIMIZER_CHOICES) : 0;
}

void pen_weight_optimizer_set(const struct pen_topology *topology, struct pen_weight *weight,
                              bool in_layer) {
  if (weight->optimizer == PEN_OPTIMIZER_BALANCE || weight->optimizer == PEN_OPTIMIZER_CHOICES) {
    set_own(topology, weight);
    return;
  }
  const struct pen_optimizer_group *group = group_of(topology, weight->tensor);
  const int optimizer = optimizer_of(topology, weight, group, in_layer);
  weight->matrix_parts = 1;
  weight->optimizer = (uint8_t)optimizer;
  weight->rate = group && group->rate >= 0 ? group->rate : 1;
  weight->weight_decay = group && group->weight_decay >= 0
                             ? group->weight_decay
                             : weight_decay_of(topology, weight->tensor, weight->dim_count == 2);
  weight->moment_count = weight->frozen ? 0 : moments_of(topology, optimizer);
}

void pen_check_stack_ending(const struct pen_topology *topology, const char *setting,
                            const char *text, size_t bytes, const struct pen_weight *weights,
                            uint32_t count) {
  char name[PEN_TENSOR_NAME_BYTES];
  for (uint32_t w = 0; w < count; w++)
    for (uint32_t n = 0; n < weights[w].stack && !pen_ends_in(weights[w].tensor, text, bytes); n++)
      if (pen_tensor_name(name, sizeof name, &weights[w], n) && pen_ends_in(name, text, bytes))
        pen_topology_fail(
            topology, setting,
            "endings of the names of all experts, %s, not of some of them, as \"%.*s\"",
            weights[w].tensor, (int)bytes, text);
}

/* Fails unless a weight has the ending, the first `bytes` of a text of the setting. */
static void check_ending(const struct pen_topology *topology, const char *setting, const char *text,
                         size_t bytes, const struct pen_weight *weights, uint32_t count) {
  pen_check_stack_ending(topology, setting, text, bytes, weights, count);
  for (uint32_t w = 0; w < count; w++)
    if (pen_is_of_model(&weights[w]) && pen_ends_in(weights[w].tensor, text, bytes)) return;
  pen_topology_fail(
      topology, setting,
      "endings of the model's tensor names, such as \"%s\"; no name has the ending of \"%s\"",
      count ? weights[0].tensor : "", text);
}

void pen_weight_optimizer_check_names(const struct pen_topology *t,
                                      const struct pen_weight *weights, uint32_t count) {
  const struct pen_strings *decays = &t->optimizer_weight_decay_groups;
  for (size_t i = 0; i < decays->count; i++)
    check_ending(t, "optimizer.weight_decay_groups", decays->value[i],
                 strcspn(decays->value[i], "="), weights, count);
  for (size_t i = 0; i < t->optimizer_groups.count; i++) {
    const struct pen_strings *endings = &t->optimizer_group[i].endings;
    for (size_t e = 0; e < endings->count; e++)
      check_ending(t, "optimizer.groups", endings->value[e], strlen(endings->value[e]), weights,
                   count);
  }
}
