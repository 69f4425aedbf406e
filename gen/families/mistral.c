/* mistral.c: Mistral (Jiang et al. 2023), with the names of Hugging Face's MistralForCausalLM:
 * rotary.c has its blocks; model.window is its sliding window, in every layer. */
#include "gen/base/arena.h"
#include "gen/families/rotary.h"
#include "gen/topology/topology.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, PEN_ROTARY_WINDOW);
}

static char *config_json(const struct pen_topology *t) {
  const char *window = t->model_window ? pen_text("%lld", (long long)t->model_window) : "null";
  return pen_rotary_config(t, "MistralForCausalLM", "mistral",
                           pen_text(PEN_ROTARY_SILU "\"sliding_window\": %s", window));
}

const struct pen_family pen_family_mistral =
    PEN_ROTARY_FAMILY("mistral", attention_block, config_json);
