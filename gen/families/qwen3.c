/* qwen3.c: Qwen3 (Yang et al. 2025), dense, with the names of Hugging Face's Qwen3ForCausalLM:
 * Llama with an RMSNorm over each head of q and k before the rotary positions, which bounds the
 * attention scores (Henry et al. 2020). */
#include "gen/families/rotary.h"
#include "gen/topology/topology.h"

static uint32_t attention_block(struct pen_graph *graph, uint32_t n, uint32_t x) {
  return pen_rotary_attention(graph, n, x, PEN_ROTARY_HEAD_NORMS);
}

const struct pen_family pen_family_qwen3 = PEN_ROTARY_FAMILY("qwen3", attention_block);
