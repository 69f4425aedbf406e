/* llama.c: Llama (Touvron et al. 2023), with the names of Hugging Face's LlamaForCausalLM; rotary.c
 * has its blocks. */
#include "gen/families/rotary.h"
#include "gen/topology/topology.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, 0);
}

const struct pen_family pen_family_llama = PEN_ROTARY_FAMILY("llama", attention_block);
