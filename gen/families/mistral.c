/* mistral.c: Mistral (Jiang et al. 2023), with the names of Hugging Face's MistralForCausalLM:
 * rotary.c has its blocks; model.window is its sliding window, in every layer. */
#include "gen/families/rotary.h"
#include "gen/topology/topology.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, PEN_ROTARY_WINDOW);
}

const struct pen_family pen_family_mistral = PEN_ROTARY_FAMILY("mistral", attention_block);
