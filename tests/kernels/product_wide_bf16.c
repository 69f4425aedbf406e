/* kernels_product_wide_bf16.c: our own products of bf16 by pairs, made of what the compiler's least
 * instruction set has: the logic that a CPU with AVX512_BF16 runs, where there is none. */
#pragma GCC diagnostic ignored "-Wpsabi"
#define PEN_ISA wide
#define PEN_STORED_BF16
#define PEN_VECTOR_BYTES 64
#include "kernels/cpu/vector/product_pairs.c"
