/* llama.c: Llama (Touvron et al. 2023), with the names of Hugging Face's LlamaForCausalLM; rotary.c
 * has its blocks. */
#include "gen/families/rotary.h"
#include "gen/topology/topology.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, 0);
}

static char *config_json(const struct pen_topology *t) {
  return pen_rotary_config(t, "LlamaForCausalLM", "llama",
                           PEN_ROTARY_SILU "\"attention_bias\": false,\n  \"mlp_bias\": false");
}

const struct pen_family pen_family_llama = PEN_ROTARY_FAMILY("llama", attention_block, config_json);
