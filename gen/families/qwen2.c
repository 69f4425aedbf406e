/* qwen2.c: Qwen2 and Qwen2.5 (Yang et al. 2024), dense, with the names of Hugging Face's
 * Qwen2ForCausalLM: the blocks of rotary.c with biases of q, k and v. */
#include "gen/families/rotary.h"
#include "gen/topology/topology.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, PEN_ROTARY_BIASES);
}

const struct pen_family pen_family_qwen2 = PEN_ROTARY_FAMILY("qwen2", attention_block);
